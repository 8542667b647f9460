//! Sentences of core in the page's language: each is known by its template, as `cut {0} is at node {1}`.
//!
//! Core says why a plan or a file is refused in English only, and says it to the command line as well. The
//! page's list of texts has core's templates too; a sentence that has none is shown as it is.

/// A pair of the list whose English has values by number.
fn is_template(english: &str) -> bool {
    english.contains("{0}")
}

/// The sentence by the template that says most of it, its values translated likewise.
pub fn translated(sentence: &str, pairs: &[(&'static str, &'static str)]) -> String {
    if let Ok(at) = pairs.binary_search_by_key(&sentence, |(english, _)| *english) {
        return pairs[at].1.to_owned();
    }
    let templates = pairs.iter().filter(|(english, _)| is_template(english));
    let found =
        templates.filter_map(|(english, text)| Some((english, text, values(english, sentence)?)));
    let said = |english: &str| english.len() - 3 * english.matches('{').count();
    let Some((_, text, values)) = found.max_by_key(|(english, ..)| said(english)) else {
        return sentence.to_owned();
    };
    let mut out = String::with_capacity(text.len() + sentence.len());
    let mut rest = *text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((number, after)) = after.split_once('}') else { break };
        let value = number.parse().ok().and_then(|number: usize| values.get(number));
        out.push_str(&translated(value.copied().unwrap_or_default(), pairs));
        rest = after;
    }
    out.push_str(rest);
    out
}

/// What stands in place of the template's numbers, where the sentence is one of the template's.
fn values<'a>(template: &str, sentence: &'a str) -> Option<Vec<&'a str>> {
    let mut parts = template.split('{');
    let mut rest = sentence.strip_prefix(parts.next()?)?;
    let mut values = vec![];
    let mut parts = parts.filter_map(|part| part.split_once('}')).peekable();
    while let Some((_, text)) = parts.next() {
        // The last words end the sentence; the ones between are the next such words.
        let at = match parts.peek() {
            Some(_) => rest.find(text)?,
            None => rest.len().checked_sub(text.len()).filter(|_| rest.ends_with(text))?,
        };
        values.push(&rest[..at]);
        rest = &rest[at + text.len()..];
    }
    // A value that is the whole sentence would be translated for ever.
    (rest.is_empty() && values.iter().all(|value| value.len() < sentence.len())).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIRS: [(&str, &str); 5] = [
        ("schedule: {0}", "順序:{0}"),
        (
            "{0} cut{1} make{2} {3} stage{4}, the schedule has {5}",
            "カット {0} で {3} 段、順序は {5} 段",
        ),
        ("{0} cannot have {1} stages: {2}", "{0} は {1} 段にできない:{2}"),
        ("{0}: {1}", "{0}、{1}"),
        ("it needs an even number", "偶数のみ"),
    ];

    fn said(sentence: &str) -> String {
        let mut pairs = PAIRS.to_vec();
        pairs.sort_unstable();
        translated(sentence, &pairs)
    }

    #[test]
    fn sentences_are_known_by_what_they_say_most_of_and_so_are_their_parts() {
        assert_eq!(
            said("3 cuts make 4 stages, the schedule has 5"),
            "カット 3 で 4 段、順序は 5 段"
        );
        assert_eq!(
            said("1 cut makes 2 stages, the schedule has 5"),
            "カット 1 で 2 段、順序は 5 段"
        );
        assert_eq!(
            said("schedule: dualpipe cannot have 5 stages: it needs an even number"),
            "順序:dualpipe は 5 段にできない:偶数のみ"
        );
        assert_eq!(said("a: b"), "a、b");
        assert_eq!(said("no such words"), "no such words");
        assert_eq!(said(""), "");
    }

    #[test]
    fn words_that_end_a_template_end_the_sentence() {
        assert_eq!(values("{0} is missing", "a is missing here"), None);
        assert_eq!(values("a {0} b", "a b"), None);
        assert_eq!(values("{0} b {1}", "a b b"), Some(vec!["a", "b"]));
        assert_eq!(values("{0}", "everything"), None);
    }
}
