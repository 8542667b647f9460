//! Repeated blocks by the names of layers: `layer3.4.conv2` is a layer of block 4 of `layer3`.
//! Neighbours of one block fold to a row, and so do neighbouring blocks of one name.

/// Layers that fold to one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What stands for them: `layer3`, or `layer3.4`.
    pub name: String,
    pub first: usize,
    pub end: usize,
    /// How deep it stands.
    pub level: u8,
}

/// A line of the chain: a layer, or a group, folded or with its layers below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRow {
    pub first: usize,
    pub end: usize,
    pub level: u8,
    pub kind: Kind,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Layer,
    /// By index.
    Folded(usize),
    /// Its layers are the rows below it.
    Open(usize),
}

impl LayerRow {
    /// The group that it stands for.
    pub fn group(&self) -> Option<usize> {
        match self.kind {
            Kind::Layer => None,
            Kind::Folded(group) | Kind::Open(group) => Some(group),
        }
    }

    pub fn is_open(&self) -> bool {
        matches!(self.kind, Kind::Open(_))
    }

    /// Whether both are the same thing, folded or not.
    pub fn stands_for(&self, other: &Self) -> bool {
        (self.first, self.group()) == (other.first, other.group())
    }
}

/// A name's family and its block in it; `None` for a name without number.
fn parts(name: &str) -> Option<(&str, &str)> {
    let separator = |c: char| c.is_ascii() && !c.is_ascii_alphanumeric();
    let mut start = 0;
    for part in name.split(separator) {
        let end = start + part.len();
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            return Some((name[..start].trim_end_matches(separator), &name[..end]));
        }
        // What separates may be longer than a byte.
        start = end + name[end..].chars().next().map_or(0, char::len_utf8);
    }
    let family = name.trim_end_matches(|c: char| c.is_ascii_digit());
    (family.len() < name.len()).then_some((family, name))
}

/// All groups, each before those within it.
pub fn groups<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Group> {
    let parts: Vec<_> = names.map(parts).collect();
    let mut found = vec![];
    let mut first = 0;
    while first < parts.len() {
        let family = parts[first].map(|p| p.0);
        let alike = |p: &&Option<(&str, &str)>| p.map(|p| p.0) == family;
        let end = first + parts[first..].iter().take_while(alike).count();
        if let Some(family) = family {
            add(family, &parts[first..end], first, &mut found);
        }
        first = end.max(first + 1);
    }
    found
}

/// The groups of one run of a family.
fn add(family: &str, run: &[Option<(&str, &str)>], first: usize, found: &mut Vec<Group>) {
    let mut blocks = vec![];
    for (at, block) in run.iter().flatten().map(|p| p.1).enumerate() {
        match blocks.last_mut() {
            Some((name, _, end)) if *name == block => *end = at + 1,
            _ => blocks.push((block, at, at + 1)),
        }
    }
    let many = u8::from(blocks.len() > 1);
    if many == 1 {
        let end = first + run.len();
        found.push(Group { name: family.into(), first, end, level: 0 });
    }
    for (name, a, b) in blocks.into_iter().filter(|(_, a, b)| b - a > 1) {
        found.push(Group { name: name.into(), first: first + a, end: first + b, level: many });
    }
}

/// The rows; `open` says of each group whether it is unfolded.
pub fn rows(layers: usize, groups: &[Group], open: &[bool]) -> Vec<LayerRow> {
    let mut rows = vec![];
    let mut level = vec![0; layers];
    let mut folded_until = 0;
    let mut next = 0;
    for first in 0..layers {
        while let Some(group) = groups.get(next).filter(|g| g.first == first) {
            if first >= folded_until {
                let is_open = open.get(next) == Some(&true);
                let kind = if is_open { Kind::Open(next) } else { Kind::Folded(next) };
                rows.push(LayerRow { first, end: group.end, level: group.level, kind });
                if !is_open {
                    folded_until = group.end;
                }
            }
            level[first..group.end].fill(group.level + 1);
            next += 1;
        }
        if first >= folded_until {
            rows.push(LayerRow { first, end: first + 1, level: level[first], kind: Kind::Layer });
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::graph::presets::Preset;

    fn of(names: &[&str]) -> Vec<(String, usize, usize, u8)> {
        let groups = groups(names.iter().copied());
        groups.into_iter().map(|g| (g.name, g.first, g.end, g.level)).collect()
    }

    fn preset(preset: Preset) -> Vec<Group> {
        groups(preset.graph().unwrap().layers().iter().map(|l| l.name.as_str()))
    }

    #[test]
    fn blocks_of_layers_and_runs_of_blocks() {
        let names = ["stem", "l3.0.conv1", "l3.0.conv2", "l3.1.conv1", "l3.1.conv2", "fc"];
        let expected = [("l3", 1, 5, 0), ("l3.0", 1, 3, 1), ("l3.1", 3, 5, 1)];
        assert_eq!(of(&names), expected.map(|(n, a, b, l)| (n.to_owned(), a, b, l)));
        // One block alone, plain numbers at the end, and names that are not alike.
        assert_eq!(of(&["x.0.a", "x.0.b", "y"]), [("x.0".into(), 0, 2, 0)]);
        assert_eq!(of(&["fc6", "fc7", "loss"]), [("fc".into(), 0, 2, 0)]);
        assert_eq!(of(&["a", "a", "b0", "c0"]), []);
        assert_eq!(of(&["/m/h.0/x", "/m/h.1/x"]), [("/m/h".into(), 0, 2, 0)]);
        assert_eq!(of(&["ä·1", "ä·2", "", "日本"]), [("ä·".into(), 0, 2, 0)]);
    }

    #[test]
    fn networks_fold_to_their_parts() {
        let names = |groups: Vec<Group>| groups.into_iter().map(|g| g.name).collect::<Vec<_>>();
        assert_eq!(names(preset(Preset::Gpt2)), ["h"]);
        let resnet = preset(Preset::Resnet50);
        assert_eq!(names(resnet.clone()), ["layer1", "layer2", "layer3", "layer4"]);
        assert_eq!((resnet[2].first, resnet[2].end), (8, 14));
    }

    #[test]
    fn rows_show_what_is_open() {
        let names = ["stem", "l3.0.conv1", "l3.0.conv2", "l3.1.conv1", "l3.1.conv2", "fc"];
        let groups = groups(names.iter().copied());
        let shown = |open: &[usize]| {
            let open: Vec<bool> = (0..groups.len()).map(|g| open.contains(&g)).collect();
            let rows = rows(names.len(), &groups, &open);
            rows.iter().map(|r| (r.first, r.end, r.level, r.is_open())).collect::<Vec<_>>()
        };
        assert_eq!(shown(&[]), [(0, 1, 0, false), (1, 5, 0, false), (5, 6, 0, false)]);
        // What is open inside of a folded group is not seen.
        assert_eq!(shown(&[1]), shown(&[]));
        let inner = [(1, 5, 0, true), (1, 3, 1, false), (3, 5, 1, false)];
        assert_eq!(shown(&[0])[1..4], inner);
        let all = shown(&[0, 1, 2]);
        assert_eq!(all.len(), 6 + 3);
        assert_eq!(all[3], (1, 2, 2, false));
    }
}
