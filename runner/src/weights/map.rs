//! Weights under the names of transformers: found for a network whose parameters have others, turned
//! where it is GPT-2's, and joined where one parameter here is several there.

use super::{LISTED, WeightSource, WeightsError};
use crate::tensor_file::TensorFileError;
use pipewright_core::graph::Graph;
use pipewright_core::hf::{Counterpart, Counterparts, Family, counterparts, family_of};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Where the values of a parameter lie.
struct ParamLocation {
    /// Tensors, one after the other along the first axis.
    parts: Vec<String>,
    /// Whether each is without that axis.
    stacked: bool,
    /// Whether they are turned.
    transposed: bool,
}

/// A source seen through the names of a network.
struct Mapped {
    inner: Box<dyn WeightSource>,
    places: BTreeMap<String, ParamLocation>,
    /// Tensors that are no parameter's.
    unused: Vec<String>,
    /// What the network does otherwise than the file's.
    note: Option<&'static str>,
}

/// The source as the network names its parameters, where its own names are those of transformers or lie
/// below another module; else the source as it is.
///
/// # Errors
/// When it is a known network's, and has not all that this one needs.
pub(super) fn adapt(
    source: Box<dyn WeightSource>,
    graph: &Graph,
) -> Result<Box<dyn WeightSource>, WeightsError> {
    let tied = super::tied_names(graph);
    let params: Vec<String> = graph.params().iter().map(|param| param.name.clone()).collect();
    let fits = |name: &String| source.shape(name) == shape(graph, name);
    if params.iter().all(|name| fits(name) || tied.contains(&name.as_str())) {
        return Ok(source);
    }
    let names = source.names();
    let there = family_of(names.iter().map(String::as_str));
    let unfit = |why: String| WeightsError::Unfit { path: source.path().into(), why };
    let known = match (counterparts(&params), there) {
        (Ok(known), _) => known,
        (Err(_), None) => None,
        (Err(why), Some(family)) => {
            return Err(unfit(format!(
                "recognised as {family}; {why}. Plan with --model hf:config.json"
            )));
        }
    };
    let here = known.as_ref().map(|known| known.family);
    if let (Some(there), None) = (there, here.filter(|here| Some(*here) == there)) {
        let network = graph.name();
        let it = here.map_or(String::new(), |here| format!(", a network as {here}"));
        return Err(unfit(format!("recognised as {there}; the plan's network is {network}{it}")));
    }
    let known = known.unwrap_or_else(|| own_names(&params));
    let wanted: Vec<&String> = known.all.iter().flat_map(|one| &one.parts).collect();
    let relation = Relation::best(source.as_ref(), &names, &wanted);
    let found = Found { source: source.as_ref(), names: &names, relation };
    let transposes = there == Some(Family::Gpt2) && found.is_conv1d();
    let mut places = BTreeMap::new();
    let mut missing = vec![];
    for Counterpart { param, parts, stacked, transposed } in &known.all {
        let (param, stacked, transposed) = (param.clone(), *stacked, *transposed && transposes);
        let parts: Option<Vec<String>> = parts.iter().map(|part| found.name(part)).collect();
        match parts {
            Some(parts) => {
                places.insert(param, ParamLocation { parts, stacked, transposed });
            }
            None if tied.contains(&param.as_str()) => {}
            None => missing.push(param),
        }
    }
    // Of an unknown network all or nothing: what is alike in part may be something else.
    if there.is_none() && !missing.is_empty() {
        return Ok(source);
    }
    if let (Some(family), false) = (there, missing.is_empty()) {
        let listed: Vec<&str> = missing.iter().take(LISTED).map(String::as_str).collect();
        let more = if missing.len() > LISTED { ", .." } else { "" };
        let (count, list) = (missing.len(), listed.join(", "));
        return Err(unfit(format!(
            "recognised as {family}; no values for {count} of the model's parameters: {list}{more}"
        )));
    }
    let note = (known.is_preset && there == Some(Family::Gpt2)).then_some(
        "GPT-2 has GELU by its approximation with tanh, the preset has the exact one; \
         --model hf:config.json makes the very network",
    );
    let used: BTreeSet<&String> = places.values().flat_map(|place| &place.parts).collect();
    let unused = names.iter().filter(|name| !used.contains(name) && !is_idle(name)).cloned();
    let unused = unused.collect();
    Ok(Box::new(Mapped { inner: source, places, unused, note }))
}

/// A network whose names are those of the file, but for the module that it lies in.
fn own_names(params: &[String]) -> Counterparts {
    let same = |param: &String| Counterpart {
        param: param.clone(),
        parts: vec![param.clone()],
        stacked: false,
        transposed: false,
    };
    // Nobody asks for the family of what was not recognised.
    Counterparts { family: Family::Llama, all: params.iter().map(same).collect(), is_preset: false }
}

fn shape(graph: &Graph, name: &str) -> Option<Vec<u64>> {
    graph.params().iter().find(|param| param.name == name).map(|param| param.shape.clone())
}

/// Tensors of which no result depends: masks and tables that are computed, the copy of a tied table.
fn is_idle(name: &str) -> bool {
    let ends = [
        "attn.bias",
        "attn.masked_bias",
        "rotary_emb.inv_freq",
        "position_ids",
        "token_type_ids",
        "num_batches_tracked",
        "lm_head.weight",
    ];
    ends.iter().any(|end| name.ends_with(end))
}

/// The tensors of a file.
struct Found<'a> {
    source: &'a dyn WeightSource,
    names: &'a [String],
    /// What makes their names of those that are wanted.
    relation: Relation,
}

/// How names in a file differ from those that are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Relation {
    #[default]
    None,
    /// They have this in front: the file is of something larger.
    Longer(String),
    /// They lack this in front: the file is of a part, or the network lies in a module of one's own.
    Shorter(String),
}

impl Relation {
    /// That of two names, if they differ in nothing else.
    fn of(wanted: &str, name: &str) -> Option<Self> {
        let lead = |long: &str, end: &str| {
            let lead = long.strip_suffix(end).filter(|lead| lead.ends_with('.'));
            lead.map(str::to_owned)
        };
        lead(name, wanted).map(Self::Longer).or_else(|| lead(wanted, name).map(Self::Shorter))
    }

    fn name(&self, wanted: &str) -> Option<String> {
        match self {
            Self::None => None,
            Self::Longer(lead) => Some(format!("{lead}{wanted}")),
            Self::Shorter(lead) => wanted.strip_prefix(lead.as_str()).map(str::to_owned),
        }
    }

    /// The one by which most of the tensors are found.
    fn best(source: &dyn WeightSource, names: &[String], wanted: &[&String]) -> Self {
        // Those of a few tell it; a network's first ones may be without.
        let some = wanted.iter().take(16);
        let pairs = some.flat_map(|wanted| names.iter().filter_map(|name| Self::of(wanted, name)));
        let all: BTreeSet<Self> = pairs.collect();
        let found = |relation: &Self| {
            let there = |wanted: &&&String| {
                relation.name(wanted).is_some_and(|name| source.shape(&name).is_some())
            };
            wanted.iter().filter(there).count()
        };
        all.into_iter().max_by_key(found).unwrap_or_default()
    }
}

impl Found<'_> {
    /// The tensor of that name, or of the one that it has in the file.
    fn name(&self, wanted: &str) -> Option<String> {
        let there = |name: &String| self.source.shape(name).is_some();
        Some(wanted.to_owned()).filter(there).or_else(|| self.relation.name(wanted).filter(there))
    }

    /// Whether linear layers lie as transformers' GPT-2 has them, `[in, out]`.
    fn is_conv1d(&self) -> bool {
        let name = self.names.iter().find(|name| name.ends_with("attn.c_attn.weight"));
        let shape = name.and_then(|name| self.source.shape(name));
        shape.is_some_and(|shape| matches!(shape[..], [rows, columns] if rows < columns))
    }
}

impl Mapped {
    /// The shape of a part as it lies here.
    fn part(&self, name: &str, transposed: bool) -> Option<Vec<u64>> {
        let mut shape = self.inner.shape(name)?;
        if transposed {
            shape.reverse();
        }
        Some(shape)
    }
}

impl WeightSource for Mapped {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn names(&self) -> Vec<String> {
        self.places.keys().chain(&self.unused).cloned().collect()
    }

    fn note(&self) -> Option<&'static str> {
        self.note
    }

    fn shape(&self, name: &str) -> Option<Vec<u64>> {
        let ParamLocation { parts, stacked, transposed } = self.places.get(name)?;
        let mut shapes = parts.iter().map(|part| {
            let mut shape = self.part(part, *transposed)?;
            if *stacked {
                shape.insert(0, 1);
            }
            Some(shape)
        });
        let mut whole = shapes.next()??;
        for shape in shapes {
            let shape = shape?;
            // What does not fit together is no parameter of the network: its shape is said.
            if shape.len() != whole.len() || shape.get(1..) != whole.get(1..) {
                return Some(shape);
            }
            *whole.first_mut()? += shape[0];
        }
        Some(whole)
    }

    fn read(&self, name: &str, into: &mut [f32]) -> Result<(), TensorFileError> {
        let ParamLocation { parts, transposed, .. } = &self.places[name];
        let mut rest = into;
        for part in parts {
            let shape = self.inner.shape(part).expect("it was found");
            let (mine, others) = rest.split_at_mut(shape.iter().product::<u64>() as usize);
            match (transposed, &shape[..]) {
                (true, &[rows, columns]) => {
                    let mut values = vec![0.0; mine.len()];
                    self.inner.read(part, &mut values)?;
                    turn(&values, [rows as usize, columns as usize], mine);
                }
                _ => self.inner.read(part, mine)?,
            }
            rest = others;
        }
        Ok(())
    }
}

/// Writes the transpose of a matrix of so many rows and columns.
pub fn turn(values: &[f32], [rows, columns]: [usize; 2], into: &mut [f32]) {
    for (column, row_of_result) in into.chunks_exact_mut(rows).enumerate() {
        let from = values[column..].iter().step_by(columns);
        row_of_result.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;
    use super::*;
    use pipewright_core::graph::{GraphBuilder, Op};

    /// Tensors of ones' own numbers.
    struct Tensors(BTreeMap<String, Vec<u64>>);

    impl WeightSource for Tensors {
        fn path(&self) -> &Path {
            Path::new("t.safetensors")
        }

        fn names(&self) -> Vec<String> {
            self.0.keys().cloned().collect()
        }

        fn shape(&self, name: &str) -> Option<Vec<u64>> {
            self.0.get(name).cloned()
        }

        fn read(&self, name: &str, into: &mut [f32]) -> Result<(), TensorFileError> {
            let first = 100.0 * self.0.keys().position(|key| key == name).unwrap() as f32;
            into.iter_mut().enumerate().for_each(|(at, value)| *value = first + at as f32);
            Ok(())
        }
    }

    fn tensors(all: &[(&str, &[u64])]) -> Box<dyn WeightSource> {
        let all = all.iter().map(|(name, shape)| ((*name).to_string(), shape.to_vec()));
        Box::new(Tensors(all.collect()))
    }

    /// A block's linear layer, named as presets name it.
    fn network(name: &str, out_features: u64) -> Graph {
        let mut g = GraphBuilder::new("net");
        g.layer("all");
        let x = g.input(vec![2]);
        let x = g.add(name, Op::Linear { out_features, bias: false }, &[x]);
        g.loss(x, out_features);
        g.finish().unwrap()
    }

    #[test]
    fn queries_keys_and_values_become_one() {
        let graph = network("encoder.0.attn.qkv", 6);
        let of = |end: &str| format!("encoder.layer.0.attention.self.{end}.weight");
        let [q, k, v] = ["query", "key", "value"].map(of);
        let found = adapt(tensors(&[(&q, &[2, 2]), (&k, &[2, 2]), (&v, &[2, 2])]), &graph).unwrap();
        assert_eq!(check(found.as_ref(), &graph).unwrap(), Vec::<String>::new());
        let mut values = [0.0; 12];
        found.read("encoder.0.attn.qkv.weight", &mut values).unwrap();
        // In the order of their names: key, query, value.
        let expected = [100.0, 101.0, 102.0, 103.0, 0.0, 1.0, 2.0, 3.0, 200.0, 201.0, 202.0, 203.0];
        assert_eq!(values, expected);
        let error = adapt(tensors(&[(&q, &[2, 2])]), &graph).err().unwrap().to_string();
        assert!(error.contains("recognised as BERT; no values for 1 of"), "{error}");
        let other = network("fc", 6);
        let error = adapt(tensors(&[(&q, &[2, 2])]), &other).err().unwrap().to_string();
        assert!(error.ends_with("recognised as BERT; the plan's network is net"), "{error}");
    }

    #[test]
    fn gpt_2_s_matrices_are_turned_and_nano_gpt_s_are_not() {
        let graph = network("h.0.attn.qkv", 6);
        let read = |shape: &[u64]| {
            let name = "transformer.h.0.attn.c_attn.weight";
            let found = adapt(tensors(&[(name, shape)]), &graph).unwrap();
            assert_eq!(found.shape("h.0.attn.qkv.weight"), Some(vec![6, 2]));
            let mut values = [0.0; 12];
            found.read("h.0.attn.qkv.weight", &mut values).unwrap();
            values
        };
        assert_eq!(read(&[2, 6])[..4], [0.0, 6.0, 1.0, 7.0]);
        assert_eq!(read(&[6, 2])[..4], [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn a_network_may_lie_in_a_module() {
        let graph = network("m.fc", 3);
        let found = adapt(tensors(&[("fc.weight", &[3, 2])]), &graph).unwrap();
        assert_eq!(found.shape("m.fc.weight"), Some(vec![3, 2]));
        let graph = network("fc", 3);
        let found = adapt(tensors(&[("module.fc.weight", &[3, 2])]), &graph).unwrap();
        assert_eq!(found.shape("fc.weight"), Some(vec![3, 2]));
        // Half of a network is not found by the ends of names.
        let mut g = GraphBuilder::new("net");
        g.layer("all");
        let x = g.input(vec![2]);
        let x = g.linear("fc", x, 3);
        g.loss(x, 3);
        let graph = g.finish().unwrap();
        let found = adapt(tensors(&[("block.fc.weight", &[3, 2])]), &graph).unwrap();
        assert_eq!(found.shape("fc.weight"), None);
    }
}
