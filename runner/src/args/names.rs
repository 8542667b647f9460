//! Names of the program: `runner`, and `pipewright` where it is installed. One file and a link to it.

use super::Cli;
use clap::builder::StyledStr;
use clap::{Command, CommandFactory, FromArgMatches};
use std::ffi::OsString;
use std::path::Path;

/// The name that texts are written with.
const WRITTEN: &str = "runner";

/// The name of the link.
const LINK: &str = "pipewright";

/// Reads the command line, of which `runner plan.json` is short for `runner run plan.json`. Help says the
/// name by which the program was called.
pub fn parse(mut args: Vec<OsString>) -> Cli {
    let is_plan = |arg: &OsString| Path::new(arg).extension().is_some_and(|end| end == "json");
    if args.get(1).is_some_and(is_plan) {
        args.insert(1, "run".into());
    }
    let name = called(args.first());
    let matches = command(name).get_matches_from(args);
    Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command(name)).exit())
}

fn called(first: Option<&OsString>) -> &'static str {
    let file = first.and_then(|path| Path::new(path).file_stem());
    if file.is_some_and(|file| file == LINK) { LINK } else { WRITTEN }
}

/// The command line with `name` in its texts.
fn command(name: &'static str) -> Command {
    let command = Cli::command();
    if name == WRITTEN {
        return command;
    }
    let words: Vec<String> =
        command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    renamed(command.name(name), &|text| replaced(text, name, &words))
}

fn renamed(mut command: Command, change: &dyn Fn(&str) -> String) -> Command {
    let text = |text: Option<&StyledStr>| text.map(|text| change(&text.to_string()));
    if let Some(about) = text(command.get_about()) {
        command = command.about(about);
    }
    if let Some(about) = text(command.get_long_about()) {
        command = command.long_about(about);
    }
    if let Some(after) = text(command.get_after_help()) {
        command = command.after_help(after);
    }
    if let Some(after) = text(command.get_after_long_help()) {
        command = command.after_long_help(after);
    }
    command = command.mut_args(|mut arg| {
        if let Some(help) = arg.get_help().map(|help| change(&help.to_string())) {
            arg = arg.help(help);
        }
        if let Some(help) = arg.get_long_help().map(|help| change(&help.to_string())) {
            arg = arg.long_help(help);
        }
        arg
    });
    command.mut_subcommands(|sub| renamed(sub, change))
}

/// A text whose commands, `runner plan ..` and `runner plan.json`, begin with `name`. What is said of a
/// runner stays.
fn replaced(text: &str, name: &str, commands: &[String]) -> String {
    let mut parts = text.split("runner ");
    let mut whole = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let inside = whole.ends_with(|c: char| c.is_alphanumeric() || c == '-' || c == '_');
        let next = part.split(|c: char| c.is_whitespace() || "`,:;)".contains(c)).next();
        let next = next.unwrap_or_default();
        let command = next.ends_with(".json") || commands.iter().any(|command| command == next);
        whole.push_str(if command && !inside { name } else { WRITTEN });
        whole.push(' ');
        whole.push_str(part);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_take_the_name_and_sentences_keep_theirs() {
        let commands = ["plan".to_owned(), "join".to_owned()];
        let new = |text| replaced(text, LINK, &commands);
        assert_eq!(
            new("`runner plan`: mpirun -n 4 runner a.json"),
            "`pipewright plan`: mpirun -n 4 pipewright a.json"
        );
        for text in ["a runner built with etcd", "my-runner plan", "runner", "frontrunner plan", ""]
        {
            assert_eq!(new(text), text);
        }
        assert_eq!(new("runner join --slots 2"), "pipewright join --slots 2");
    }

    #[test]
    fn only_the_link_is_called_so() {
        let name = |path: &str| called(Some(&OsString::from(path)));
        assert_eq!(name("/usr/local/bin/pipewright"), LINK);
        assert_eq!(name("pipewright"), LINK);
        for path in ["target/release/runner", "", "/pipewright/other"] {
            assert_eq!(name(path), WRITTEN);
        }
        assert_eq!(called(None), WRITTEN);
    }

    #[test]
    fn no_command_in_the_help_keeps_the_written_name() {
        let texts = |mut command: Command| {
            let mut all = command.render_long_help().to_string();
            for sub in command.get_subcommands_mut() {
                all += &sub.render_long_help().to_string();
            }
            all
        };
        let (written, new) = (texts(command(WRITTEN)), texts(command(LINK)));
        let begins = |text: &str, name: &str| text.matches(&format!("{name} plan ")).count();
        assert!(begins(&written, WRITTEN) > 3, "{written}");
        assert_eq!(begins(&new, WRITTEN), 0, "{new}");
        assert_eq!(begins(&new, LINK), begins(&written, WRITTEN));
    }
}
