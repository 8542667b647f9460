//! Parameters that are tuples of bare numbers: what a caller can swap, and the compiler takes.

use crate::source::{Source, Token, tokens};

/// What says nothing of its meaning.
const BARE: &[&str] = &[
    "bool", "u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize",
    "f32", "f64",
];

/// Functions with a parameter whose type is a tuple that has a bare number in it; their lines and names.
/// Closures have no types to read, and slices of pairs are data.
pub fn packed(source: &Source) -> Vec<(usize, String)> {
    let code = source.code();
    let tokens = tokens(&code);
    let named = |i: &usize| tokens[*i].text == "fn" && tokens[i + 1].is_word(); // `fn(` is a type
    let functions = (0..tokens.len().saturating_sub(1)).filter(named);
    let packs = functions.filter(|i| parameters(&tokens[i + 2..]).into_iter().any(is_packed));
    packs.map(|i| (tokens[i].line, tokens[i + 1].text.to_string())).collect()
}

/// The types of the parameters of a function, from what stands behind its name.
fn parameters<'t, 's>(tokens: &'t [Token<'s>]) -> Vec<&'t [Token<'s>]> {
    let list = &tokens[generics(tokens)..];
    // In macros something else may stand there.
    if list.first().is_none_or(|token| token.text != "(") {
        return Vec::new();
    }
    let inside = &list[1..end_of_list(list)];
    let types = split(inside).into_iter().map(|parameter| {
        let colon = top_level(parameter, ":").next();
        colon.map_or(&parameter[..0], |colon| &parameter[colon + 1..])
    });
    types.collect()
}

/// The length of `<..>` at the start of `tokens`.
fn generics(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate() {
        match token.text {
            "<" => depth += 1,
            // `->` is no end.
            ">" if i > 0 && tokens[i - 1].text != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if token.text == ">" { i + 1 } else { 0 };
        }
    }
    tokens.len()
}

/// Where the list that begins `tokens` ends.
fn end_of_list(tokens: &[Token]) -> usize {
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i;
        }
    }
    tokens.len()
}

/// Where `wanted` stands outside of all brackets.
fn top_level<'t>(tokens: &'t [Token], wanted: &'t str) -> impl Iterator<Item = usize> + 't {
    let mut depth = 0;
    tokens.iter().enumerate().filter_map(move |(i, token)| {
        match token.text {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            ">" if tokens[i - 1].text != "-" => depth -= 1,
            _ => {}
        }
        (depth == 0 && token.text == wanted).then_some(i)
    })
}

/// What stands between commas.
fn split<'t, 's>(tokens: &'t [Token<'s>]) -> Vec<&'t [Token<'s>]> {
    let mut from = 0;
    let mut parts = Vec::new();
    for comma in top_level(tokens, ",") {
        parts.push(&tokens[from..comma]);
        from = comma + 1;
    }
    parts.push(&tokens[from..]);
    parts
}

/// Whether a type is a tuple with a bare number in it, or in a tuple in it.
fn is_packed(of: &[Token]) -> bool {
    let mut of = of;
    loop {
        of = match of {
            [and, rest @ ..] if matches!(and.text, "&" | "mut") => rest,
            [quote, _, rest @ ..] if quote.text == "'" => rest, // a lifetime
            _ => break,
        };
    }
    if of.first().is_none_or(|token| token.text != "(") || end_of_list(of) + 1 != of.len() {
        return false;
    }
    let elements = split(&of[1..of.len() - 1]);
    elements.len() > 1
        && elements.into_iter().any(|element| match element {
            [only] => BARE.contains(&only.text),
            _ => is_packed(element),
        })
}
