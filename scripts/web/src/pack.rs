//! Chunks that several others share, a hundred and more files of a few kilobytes, put together into two: what the
//! first chunk after the first picture needs, and the rest. Two requests instead of one for each, and half of the
//! bytes, as compression sees what they have in common.

use crate::Failure;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The chunk that comes right after the first picture.
const FIRST: &str = "tray";

/// What fetches and links chunks; written by wasm-split.
const LOADER: &str = "__wasm_split.js";

/// Hands out pieces of a pack that is fetched once; a pack that did not come is fetched again.
const PACKED: &str = r#"const packs = {};
function packed(name, from, to) {
    if (packs[name] === undefined) {
        const pack = fetch(new URL(name, import.meta.url)).then((answer) => {
            if (!answer.ok) throw new Error(`${name}: ${answer.status}`);
            return answer.arrayBuffer();
        });
        pack.catch(() => { if (packs[name] === pack) packs[name] = undefined; });
        packs[name] = pack;
    }
    const headers = { "content-type": "application/wasm" };
    return packs[name].then((bytes) => new Response(bytes.slice(from, to), { headers }));
}
"#;

/// Puts the shared chunks of a folder into packs, and leads what fetches them there.
pub fn pack(folder: &Path) -> Result<(), Failure> {
    let path = folder.join(LOADER);
    let loader = fs::read_to_string(&path)?;
    let mut packs: [(&str, Vec<u8>); 2] =
        [("chunks_first.bin", vec![]), ("chunks_rest.bin", vec![])];
    let mut out = String::from(PACKED);
    let mut rest = loader.as_str();
    // `/* tray, run */ const __chunk_7 = makeLoad(() => { const src = fetch(new URL("./chunk_7.wasm", import.meta.url));`
    while let Some(at) = rest.find(CALL) {
        let (before, call) = rest.split_at(at);
        let (name, after) = call[CALL.len()..].split_once(END).ok_or("a fetch without its end")?;
        out.push_str(before);
        rest = after;
        if !name.starts_with("chunk_") {
            write!(out, "{CALL}{name}{END}")?;
            continue;
        }
        let users = before.rfind("/*").map_or("", |from| &before[from..]);
        let users = users.split("*/").next().unwrap_or("").trim_start_matches("/*");
        let first = users.split(',').any(|user| user.trim() == FIRST);
        let (pack, bytes) = &mut packs[usize::from(!first)];
        let from = bytes.len();
        bytes.extend(fs::read(folder.join(name))?);
        fs::remove_file(folder.join(name))?;
        write!(out, "packed(\"./{pack}\", {from}, {to})", to = bytes.len())?;
    }
    out.push_str(rest);
    for (name, bytes) in packs {
        fs::write(folder.join(name), bytes)?;
    }
    fs::write(path, out)?;
    Ok(())
}

const CALL: &str = "fetch(new URL(\"./";
const END: &str = "\", import.meta.url))";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_chunks_are_pieces_of_two_files() {
        let folder = std::env::temp_dir().join(format!("pipewright-pack-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let load = |users: &str, name: &str| {
            format!(
                "/* {users} */\nconst a = makeLoad(() => {{\n    const src = {CALL}{name}{END};\n}}, []);\n"
            )
        };
        let text = load("run, tray", "chunk_1.wasm")
            + &load("compare, run", "chunk_2.wasm")
            + &load("files, tray", "chunk_3.wasm")
            + &load("tray", "split_tray.wasm");
        fs::write(folder.join(LOADER), text).unwrap();
        for (name, bytes) in
            [("chunk_1.wasm", "one"), ("chunk_2.wasm", "other"), ("chunk_3.wasm", "three")]
        {
            fs::write(folder.join(name), bytes).unwrap();
        }
        pack(&folder).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        assert_eq!(
            (read("chunks_first.bin").as_str(), read("chunks_rest.bin").as_str()),
            ("onethree", "other")
        );
        let loader = read(LOADER);
        for piece in
            ["_first.bin\", 0, 3)", "_rest.bin\", 0, 5)", "_first.bin\", 3, 8)", "split_tray.wasm"]
        {
            assert!(loader.contains(piece), "{piece}: {loader}");
        }
        assert!(!folder.join("chunk_1.wasm").exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
