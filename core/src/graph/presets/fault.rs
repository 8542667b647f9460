//! Reasons why the numbers behind a network's name make none. No part of parsing, so that a page that does
//! not ask for them does not carry them.

use super::transformer::{EXPERTS_MAX, KEYS, hundredths};
use super::{NAMED, Preset, Resizable};

impl Preset {
    /// What is wrong with the numbers behind the name of a network; none where there is no such network,
    /// or nothing wrong.
    pub fn fault(text: &str) -> Option<String> {
        let (family, numbers) = text.split_once(':').filter(|_| text.parse::<Self>().is_err())?;
        let why = match family {
            "fc32" => within("the width", numbers, 65_536),
            "unet" => blocks_and_channels(numbers),
            "amoebanet-d" => layers_and_filters(numbers),
            "transformer" => decoder(numbers),
            _ => match Resizable::named(family) {
                Some(network) => images(network, numbers),
                None => NAMED
                    .iter()
                    .find(|(name, _)| *name == family)
                    .map(|_| format!("{family} has one size; write it without numbers")),
            },
        };
        let shape = || format!("its numbers are not those of {family}");
        let known = ["fc32", "unet", "amoebanet-d", "transformer"].contains(&family);
        let why = why.or_else(|| known.then(shape))?;
        Some(format!("`{text}`: {why}"))
    }
}

/// That a number is not between 1 and the most it may be.
fn within(what: &str, text: &str, most: u64) -> Option<String> {
    let fits = text.parse::<u64>().is_ok_and(|number| (1..=most).contains(&number));
    (!fits).then(|| format!("{what} is `{text}`, must be a number from 1 to {most}"))
}

/// The same, and that it is no multiple of `of`.
fn multiple(what: &str, text: &str, [of, most]: [u64; 2]) -> Option<String> {
    let fits = text.parse::<u64>().is_ok_and(|n| (1..=most).contains(&n) && n.is_multiple_of(of));
    (!fits).then(|| format!("{what} is `{text}`, must be a multiple of {of} up to {most}"))
}

fn blocks_and_channels(numbers: &str) -> Option<String> {
    let Some((blocks, channels)) = numbers.split_once(',') else {
        return Some("two numbers are wanted, BLOCKS,CHANNELS, as in unet:6,72".into());
    };
    within("the number of blocks", blocks, 256)
        .or_else(|| multiple("the number of channels", channels, [2, 4096]))
}

fn layers_and_filters(numbers: &str) -> Option<String> {
    let Some((layers, filters)) = numbers.split_once(',') else {
        return Some("two numbers are wanted, LAYERS,FILTERS, as in amoebanet-d:18,208".into());
    };
    multiple("the number of layers", layers, [3, 3 * 256])
        .or_else(|| multiple("the number of filters", filters, [16, 1 << 14]))
}

/// What is wrong with a size of images and a number of classes.
fn images(network: Resizable, numbers: &str) -> Option<String> {
    let (size, classes) = match numbers.split_once(',') {
        Some((size, classes)) => (Some(size), Some(classes)),
        None if numbers.starts_with("classes=") => (None, Some(numbers)),
        None => (Some(numbers), None),
    };
    let usual = network.usual_size();
    if let Some(size) = size {
        let own = size.parse() == Ok(usual);
        if !own && !network.takes_any_size() {
            return Some(format!("the size of its images is {usual}, not `{size}`"));
        }
        let wrong = multiple("the size of images", size, [32, 4096]).filter(|_| !own);
        if wrong.is_some() {
            return wrong;
        }
    }
    let Some(count) = classes?.strip_prefix("classes=") else {
        return Some(format!(
            "behind the size `classes=NUMBER` is wanted, as in {}:{usual},classes=10",
            network.usual()
        ));
    };
    within("the number of classes", count, 1 << 20)
}

/// What is wrong with the numbers of a decoder.
fn decoder(numbers: &str) -> Option<String> {
    let (mut found, mut capacity) = ([None; KEYS.len()], false);
    for part in numbers.split(',') {
        let (key, value) = match part.split_once('=') {
            Some((key, value)) => (key, value),
            None if part == "tied" || part == "gated" => continue,
            None => (part, ""),
        };
        if key == "capacity" && !capacity {
            if hundredths(value).is_none() {
                return Some(format!("capacity is `{value}`, must be a number such as 1.25"));
            }
            capacity = true;
            continue;
        }
        let Some(at) = KEYS.iter().position(|known| *known == key) else {
            return Some(format!(
                "`{part}` is none of {}=NUMBER, capacity=NUMBER, tied, gated",
                KEYS.join("=NUMBER, ")
            ));
        };
        let most = match key {
            "layers" => 1024,
            "experts" | "top_k" => EXPERTS_MAX,
            _ => 1 << 20,
        };
        if let Some(why) = within(key, value, most) {
            return Some(why);
        }
        if found[at].replace(value.parse::<u64>().ok()?).is_some() {
            return Some(format!("{key} stands there twice"));
        }
    }
    let of = |name: &str| KEYS.iter().position(|key| *key == name).and_then(|at| found[at]);
    let needed = ["layers", "hidden", "heads", "sequence", "vocabulary"];
    if let Some(missing) = needed.iter().find(|name| of(name).is_none()) {
        return Some(format!("{missing}=NUMBER is missing"));
    }
    let (hidden, heads) = (of("hidden")?, of("heads")?);
    let kv = of("kv").unwrap_or(heads);
    if !hidden.is_multiple_of(heads) {
        return Some(format!("hidden={hidden} is no multiple of heads={heads}"));
    }
    if !heads.is_multiple_of(kv) {
        return Some(format!("heads={heads} is no multiple of kv={kv}"));
    }
    match (of("experts"), of("top_k")) {
        (None, top_k) if top_k.is_some() || capacity => Some("experts=NUMBER is missing".into()),
        (Some(experts), Some(top_k)) if top_k > experts => {
            Some(format!("top_k={top_k} of experts={experts}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_make_no_network_are_named() {
        for (text, words) in [
            ("vgg16:33", "the size of images is `33`, must be a multiple of 32 up to 4096"),
            ("vgg16:x", "the size of images is `x`"),
            ("vgg16:32,10", "`classes=NUMBER` is wanted, as in vgg16:224,classes=10"),
            ("vgg16:32,classes=0", "the number of classes is `0`"),
            ("resnet18:classes=0", "the number of classes is `0`"),
            ("alexnet:32", "the size of its images is 224, not `32`"),
            ("fc32:0", "the width is `0`, must be a number from 1 to 65536"),
            ("unet:6", "two numbers are wanted, BLOCKS,CHANNELS"),
            ("unet:0,72", "the number of blocks is `0`"),
            ("unet:6,71", "the number of channels is `71`, must be a multiple of 2"),
            ("amoebanet-d:17,208", "the number of layers is `17`, must be a multiple of 3"),
            ("amoebanet-d:18,200", "the number of filters is `200`, must be a multiple of 16"),
            ("gpt2:7", "gpt2 has one size; write it without numbers"),
            ("transformer:", "`` is none of layers=NUMBER"),
            ("transformer:layers=0", "layers is `0`, must be a number from 1 to 1024"),
            ("transformer:layers=2,layers=2", "layers stands there twice"),
            ("transformer:layers=2,width=2", "`width=2` is none of layers=NUMBER"),
            ("transformer:layers=2,hidden=8,heads=2,sequence=4", "vocabulary=NUMBER is missing"),
            (
                "transformer:layers=2,hidden=9,heads=2,sequence=4,vocabulary=8",
                "hidden=9 is no multiple of heads=2",
            ),
            (
                "transformer:layers=2,hidden=8,heads=4,kv=3,sequence=4,vocabulary=8",
                "heads=4 is no multiple of kv=3",
            ),
            (
                "transformer:layers=2,hidden=8,heads=4,sequence=4,vocabulary=8,top_k=2",
                "experts=NUMBER is missing",
            ),
            (
                "transformer:layers=2,hidden=8,heads=4,sequence=4,vocabulary=8,experts=4,top_k=5",
                "top_k=5 of experts=4",
            ),
            (
                "transformer:layers=2,hidden=8,heads=4,sequence=4,vocabulary=8,experts=4,capacity=1.255",
                "capacity is `1.255`, must be a number such as 1.25",
            ),
            (
                "transformer:layers=2,hidden=8,heads=4,sequence=4,vocabulary=8,tied,tied",
                "its numbers are not those of transformer",
            ),
        ] {
            assert!(text.parse::<Preset>().is_err(), "{text}");
            let why = Preset::fault(text).unwrap_or_default();
            assert!(why.contains(words) && why.contains(&format!("`{text}`: ")), "{text}: {why}");
        }
        for text in ["vgg16", "vgg16:64", "alexnet9:2", "nothing", "fc32:512", "caffenet:227"] {
            assert_eq!(Preset::fault(text), None, "{text}");
        }
    }
}
