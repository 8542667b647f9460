//! `pipewright-web build` writes `dist/`; `serve` shows it, `embed` puts it into the runner.
//!
//! `build` is trunk without the half hour of installing trunk: cargo compiles, the library behind
//! the `wasm-bindgen` command line writes the glue, and the page comes from `index.html`.

mod bind;
mod bundle;
mod compile;
mod optimise;
mod pack;
mod page;
mod script;
mod sections;
mod sizes;
mod unused;

use compile::Care;
use pipewright_serve::Server;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Nothing here is handled by kind, only reported.
type Failure = Box<dyn std::error::Error>;

const USAGE: &str = "\
usage: pipewright-web build [--quick]
       pipewright-web embed PROGRAM
       pipewright-web meter
       pipewright-web serve [--port PORT] [--fragment TEXT] [DIR]

build   compiles the explorer for wasm32 and writes dist/; --quick: optimised a little, so the page
        comes sooner and is larger
embed   puts the page of dist/ into a program that reads it from its own file: the runner
meter   builds what tests measure in a browser, tests/meter, and says where
serve   serves DIR (default dist/) on 127.0.0.1; without --port, the first free port from 8080 on;
        TEXT is appended to the printed address, for example '#plan=demo/plan.json'";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["build"] => bundle::build(root(), Care::Published),
        ["build", "--quick"] => bundle::build(root(), Care::Quick),
        ["embed", program] => embed(Path::new(program)),
        ["meter"] => bundle::meter(root()),
        ["serve", rest @ ..] => match parse_serve(rest) {
            Some(options) => serve(&options),
            None => return usage(),
        },
        _ => return usage(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pipewright-web: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// The workspace this program was built from.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn embed(program: &Path) -> Result<(), Failure> {
    let name = program.display();
    pipewright_page::embed(program, &root().join("dist")).map_err(|e| format!("{name}: {e}"))?;
    println!("{name} has the explorer in it");
    Ok(())
}

struct Serve {
    port: Option<u16>,
    fragment: String,
    dir: PathBuf,
}

fn parse_serve(words: &[&str]) -> Option<Serve> {
    let mut options = Serve { port: None, fragment: String::new(), dir: root().join("dist") };
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--port" => options.port = Some(words.next()?.parse().ok()?),
            "--fragment" => options.fragment = words.next()?.to_string(),
            flag if flag.starts_with('-') => return None,
            dir => options.dir = PathBuf::from(dir),
        }
    }
    Some(options)
}

fn serve(options: &Serve) -> Result<(), Failure> {
    let name = options.dir.display();
    if !options.dir.join("index.html").is_file() {
        return Err(format!("{name} has no index.html; `make web` writes it").into());
    }
    let server = match options.port {
        Some(port) => Server::bind(&options.dir, port).map_err(|e| format!("port {port}: {e}"))?,
        None => (8080..8100)
            .find_map(|port| Server::bind(&options.dir, port).ok())
            .ok_or("no free port from 8080 to 8099; choose one with --port")?,
    };
    println!("Serving on {}{}", server.address()?, options.fragment);
    println!("Ctrl-C stops.");
    server.run();
    Ok(())
}
