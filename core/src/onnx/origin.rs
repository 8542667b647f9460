//! Provenance of weights: which parameter of the exported module each initialiser stands for.
//!
//! PyTorch's newer exporter keeps one initialiser for all tensors of equal bytes, drops biases that
//! are zero, and computes ahead what depends on weights alone: in a fresh network all norms share one
//! weight. What was there is told by remarks in the file: for each node the call of the exported
//! program, for the program its parameters. Without them, the modules of the readers tell.

mod ahead;
mod dropped;
mod program;
mod scopes;

use super::names;
use super::proto::{Graph, Node, Tensor, data_type};
use program::{Call, Program};
use std::collections::{BTreeMap, BTreeSet};

/// What the initialisers of a file were in the module that was exported.
#[derive(Debug, Default)]
pub(super) struct Origins {
    /// The parameter that each is, by its name in the state dict.
    parameters: BTreeMap<String, String>,
    /// Names of the state dict that nothing in the file may take: it has other numbers.
    pub lost: Vec<String>,
    /// Buffers of the state dict, which are not trained.
    pub buffers: BTreeSet<String>,
    /// Constants of the program that are in no state dict.
    pub constants: BTreeSet<String>,
    /// What was lost, said.
    pub warnings: Vec<String>,
}

impl Origins {
    /// Whether two initialisers were one parameter; none when that is not known.
    pub fn same(&self, a: &str, b: &str) -> Option<bool> {
        Some(self.parameters.get(a)? == self.parameters.get(b)?)
    }
}

/// Gives each reader of a merged initialiser one of its own, under the name that the module has for
/// it, and puts dropped biases back.
pub(super) fn restore(graph: &mut Graph, nodes: &mut Vec<Node>) -> Origins {
    let program = Program::read(graph);
    let calls: Vec<Option<Call>> = nodes.iter().map(|node| program.call(node)).collect();
    let called: BTreeSet<&str> =
        calls.iter().flatten().flat_map(|c| &c.parameters).copied().collect();
    let mut weights = Weights::new(&mut graph.initializer, nodes);
    let mut origins = Origins::default();
    for (node, call) in nodes.iter_mut().zip(&calls) {
        if let Some(call) = call {
            weights.of_call(node, call, &mut origins);
            weights.second_name(node, &program, &called, &mut origins);
        }
    }
    scopes::separate(&mut weights, nodes);
    dropped::biases(&mut weights, nodes, &calls, &mut origins);
    // These add nodes, for which there are no calls.
    ahead::tables(&mut weights, nodes, &program, &mut origins);
    ahead::shifted(&mut weights, nodes, &program, &mut origins);
    program.say(&mut origins, &graph.initializer);
    origins
}

/// The initialisers, and how often each is read.
struct Weights<'g> {
    list: &'g mut Vec<Tensor>,
    at: BTreeMap<String, usize>,
    readers: BTreeMap<String, usize>,
    /// Names of values that nodes compute.
    computed: BTreeSet<String>,
    /// Copies by what they are of and what they stand for.
    copies: BTreeMap<(String, String), String>,
}

impl<'g> Weights<'g> {
    fn new(list: &'g mut Vec<Tensor>, nodes: &[Node]) -> Self {
        let at = list.iter().enumerate().map(|(i, t)| (t.name.clone(), i)).collect();
        let mut readers = BTreeMap::new();
        for input in nodes.iter().flat_map(|node| &node.input) {
            *readers.entry(input.clone()).or_insert(0) += 1;
        }
        let computed = nodes.iter().flat_map(|node| node.output.iter().cloned()).collect();
        Self { list, at, readers, computed, copies: BTreeMap::new() }
    }

    /// The initialiser of a name, if its elements can be trained: not a single number that the
    /// exporter wrote, nor integers.
    fn get(&self, name: &str) -> Option<&Tensor> {
        let tensor = &self.list[*self.at.get(name)?];
        let float = matches!(
            tensor.data_type,
            data_type::FLOAT | data_type::FLOAT16 | data_type::BFLOAT16 | data_type::DOUBLE
        );
        let single = tensor.dims.iter().all(|n| *n == 1) && !name.contains('.');
        (float && !single).then_some(tensor)
    }

    fn shared(&self, name: &str) -> bool {
        self.readers.get(name).is_some_and(|n| *n > 1)
    }

    /// A tensor of the same bytes called `wanted`, or much like it where that name is taken.
    fn copy(&mut self, name: &str, wanted: &str) -> String {
        let key = (name.to_string(), wanted.to_string());
        if let Some(copy) = self.copies.get(&key) {
            return copy.clone();
        }
        let Some(tensor) = self.get(name).cloned() else { return name.to_string() };
        // A parameter that is in the file under its own name.
        let there = self.get(wanted).is_some_and(|t| t.dims == tensor.dims);
        let copy = if there { wanted.to_string() } else { self.free(wanted) };
        if !there {
            self.add(Tensor { name: copy.clone(), ..tensor });
        }
        self.copies.insert(key, copy.clone());
        copy
    }

    fn add(&mut self, tensor: Tensor) {
        self.at.insert(tensor.name.clone(), self.list.len());
        self.list.push(tensor);
    }

    /// A name that nothing has: `wanted`, `wanted_2`, ..
    fn free(&self, wanted: &str) -> String {
        let taken = |name: &str| self.at.contains_key(name) || self.computed.contains(name);
        let mut names =
            (1..).map(|n| if n == 1 { wanted.to_string() } else { format!("{wanted}_{n}") });
        names.find(|name| !taken(name)).unwrap_or_default()
    }

    /// The initialisers of a node whose call is known become those that the call names.
    fn of_call(&mut self, node: &mut Node, call: &Call<'_>, origins: &mut Origins) {
        for slot in 0..node.input.len() {
            let name = node.input[slot].clone();
            let Some(tensor) = self.get(&name) else { continue };
            let Some(target) = call.target(node, slot, tensor.dims.len()) else { continue };
            if target != name && (self.shared(&name) || call.is_parameter(&name)) {
                // A matrix that was turned ahead is not the module's own: it keeps a name of its own.
                node.input[slot] = match names::is_made_up(&name) {
                    true => self.turned(&name, target),
                    false => self.copy(&name, target),
                };
            }
            origins.parameters.insert(node.input[slot].clone(), target.to_string());
        }
    }

    /// A table that has two names in the module, being tied, is read under the one of its reader.
    fn second_name(
        &mut self,
        node: &mut Node,
        program: &Program,
        called: &BTreeSet<&str>,
        origins: &mut Origins,
    ) {
        let own = format!("{}.weight", names::scope(node));
        let Some(table) = node.input.first().filter(|_| node.op_type == "Gather") else { return };
        let Some(first) = origins.parameters.get(table).filter(|first| **first != own).cloned()
        else {
            return;
        };
        if program.has(&own) && !called.contains(own.as_str()) {
            node.input[0] = self.copy(&table.clone(), &own);
            origins.parameters.insert(node.input[0].clone(), first);
        }
    }

    /// The copy of a made-up initialiser for one parameter.
    fn turned(&mut self, name: &str, target: &str) -> String {
        let key = (name.to_string(), target.to_string());
        if let Some(copy) = self.copies.get(&key) {
            return copy.clone();
        }
        // The first one keeps the tensor.
        let first = !self.copies.keys().any(|(of, _)| of == name);
        let copy = if first { name.to_string() } else { self.free(name) };
        if let Some(tensor) = self.get(name).cloned().filter(|_| !first) {
            self.add(Tensor { name: copy.clone(), ..tensor });
        }
        self.copies.insert(key, copy.clone());
        copy
    }
}
