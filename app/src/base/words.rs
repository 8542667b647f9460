//! Choices of a screen as words `key=value;key=value`, as links hold them: only what differs from the first.

/// The words whose values are not those of `first`; both have the same keys in the same order.
pub fn differing(mine: &[(&str, String)], first: &[(&str, String)]) -> String {
    let differs = mine.iter().zip(first).filter(|(mine, first)| mine != first);
    let words: Vec<String> = differs.map(|((key, value), _)| format!("{key}={value}")).collect();
    words.join(";")
}

/// Hands out keys and values; what is refused, a sentence each.
pub fn read(text: &str, mut take: impl FnMut(&str, &str) -> Result<(), String>) -> Vec<String> {
    let mut problems = vec![];
    for word in text.split(';').filter(|word| !word.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        if let Err(why) = take(key, value) {
            let word: String = word.chars().take(40).collect();
            problems.push(format!("`{word}`: {why}"));
        }
    }
    problems
}

/// `%2C` to `,`; anything malformed stays as it is.
pub fn unescape(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = vec![];
    let mut i = 0;
    while i < bytes.len() {
        let hex = bytes.get(i + 1..i + 3).and_then(|h| std::str::from_utf8(h).ok());
        match hex.and_then(|h| u8::from_str_radix(h, 16).ok()) {
            Some(byte) if bytes[i] == b'%' => {
                out.push(byte);
                i += 3;
            }
            _ => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.into())
}
