//! Scripts as they are served: without indentation, and without comments that have lines of their own.

/// The script without them. One with a text of several lines stays as it is: what looks like a comment there may be text.
pub fn stripped(script: &str) -> String {
    let spans_lines = |line: &str| line.bytes().filter(|byte| *byte == b'`').count() % 2 == 1;
    if script.lines().any(spans_lines) {
        return script.into();
    }
    let (mut out, mut in_comment) = (String::with_capacity(script.len()), false);
    for line in script.lines().map(str::trim) {
        let opens = line.starts_with("/*") && (line.ends_with("*/") || !line.contains("*/"));
        if in_comment || opens {
            in_comment = !line.ends_with("*/");
        } else if !line.is_empty() && !line.starts_with("//") {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_indentation_go() {
        let script = "/**\n * What it does.\n * @param {string} name\n */\nfn(a, // stays\n  // goes\n\n    `b`);\n\
                      /* goes */\n/* stays */ c();\n";
        assert_eq!(stripped(script), "fn(a, // stays\n`b`);\n/* stays */ c();\n");
    }

    #[test]
    fn texts_of_several_lines_stay() {
        let script = "  say(`one\n  // two`);\n";
        assert_eq!(stripped(script), script);
    }
}
