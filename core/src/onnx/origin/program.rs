//! The exported program as the file's remarks tell it.

use super::Origins;
use crate::onnx::proto::{Graph, Node, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// Parameters and buffers that the program takes.
#[derive(Default)]
pub(super) struct Program {
    /// Name in the state dict, by name in the program: `p_h_0_ln_weight` is `h.0.ln.weight`.
    targets: BTreeMap<String, String>,
    /// Names in the state dict of what is trained, in order.
    parameters: Vec<String>,
    /// Names in the state dict of what is not trained.
    buffers: BTreeSet<String>,
    /// Buffers that are not in the state dict.
    constants: BTreeSet<String>,
}

/// A call in the program: `layer_norm(x, [32], p_ln_weight, p_ln_bias)`.
pub(super) struct Call<'p> {
    program: &'p Program,
    /// The operation without namespace and overload.
    pub op: String,
    /// Names in the state dict of the parameters among its arguments, in order.
    pub parameters: Vec<&'p str>,
}

/// Text between two others.
fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}

impl Program {
    /// The signature, lines such as `p_fc_weight: PARAMETER target='fc.weight'`. Empty without it.
    pub fn read(graph: &Graph) -> Self {
        let key = "pkg.torch.export.ExportedProgram.graph_signature";
        let mut program = Self::default();
        let Some(entry) = graph.metadata_props.iter().find(|e| e.key == key) else {
            return program;
        };
        let inputs = entry.value.split("# outputs").next().unwrap_or_default();
        for line in inputs.lines() {
            let Some((name, kind)) = line.split_once(": ") else { continue };
            let Some(target) = between(kind, "target='", "'") else { continue };
            if kind.starts_with("PARAMETER") {
                program.parameters.push(target.to_string());
            } else if kind.contains("persistent=False") {
                program.constants.insert(target.to_string());
            } else {
                program.buffers.insert(target.to_string());
            }
            program.targets.insert(name.trim().to_string(), target.to_string());
        }
        program
    }

    /// The call that a node is a part of: of a remark such as `%linear : [num_users=1] =
    /// call_function[target=torch.ops.aten.linear.default](args = (%x, %p_fc_weight), kwargs = {})`.
    pub fn call(&self, node: &Node) -> Option<Call<'_>> {
        let key = "pkg.torch.onnx.fx_node";
        let text = &node.metadata_props.iter().find(|e| e.key == key)?.value;
        let op = between(text, "target=torch.ops.", "]")?.split('.').nth(1)?.to_string();
        let arguments = &text[text.find("(args")?..];
        let end = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let values = arguments.split('%').skip(1).map(|rest| rest.split(end).next().unwrap_or(""));
        let parameters = values.filter_map(|v| self.targets.get(v).map(String::as_str)).collect();
        Some(Call { program: self, op, parameters })
    }

    /// Whether the module has a parameter of this name.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.iter().any(|p| p == name)
    }

    /// Parameters of which the file has no initialiser.
    pub fn missing<'p>(&'p self, origins: &Origins) -> Vec<&'p str> {
        let there: BTreeSet<&String> =
            origins.parameters.keys().chain(origins.parameters.values()).collect();
        let names = self.parameters.iter().filter(|name| !there.contains(*name));
        names.map(String::as_str).collect()
    }

    /// Notes what is a buffer or a constant, and says which parameters are not in the file any more.
    pub fn say(&self, origins: &mut Origins, initializers: &[Tensor]) {
        origins.buffers.extend(self.buffers.iter().cloned());
        origins.constants.extend(self.constants.iter().cloned());
        let missing = self.missing(origins);
        // Masks, tables of angles; rows of a table that is missing may be among them.
        let rows = |name: &str| {
            !missing.is_empty() && (name.starts_with("embedding") || name.starts_with("expand"))
        };
        let known = |name: &String| origins.parameters.contains_key(name) || self.has(name);
        let constant =
            |t: &&Tensor| !known(&t.name) && !self.buffers.contains(&t.name) && !rows(&t.name);
        if !self.parameters.is_empty() {
            let constants = initializers.iter().filter(constant).map(|t| t.name.clone());
            origins.constants.extend(constants.collect::<Vec<_>>());
        }
        origins.lost = missing.iter().map(|name| (*name).to_string()).collect();
        let mean = |name: &str| format!("{}.running_mean", module(name));
        let (norms, others): (Vec<&str>, Vec<&str>) =
            missing.into_iter().partition(|name| self.buffers.contains(&mean(name)));
        let modules: BTreeSet<&str> = norms.iter().map(|name| module(name)).collect();
        let keep = "torch.onnx.export(.., dynamo=True, optimize=False)";
        if let Some(first) = modules.first() {
            origins.warnings.push(format!(
                "{} (`{first}`, ..) folded into the layers before and not trained as such; {keep} \
                 keeps what it folds",
                counted(modules.len(), "batch norm is", "batch norms are"),
            ));
        }
        if let Some(first) = others.first() {
            origins.warnings.push(format!(
                "{} of the module (`{first}`, ..) not in the file: the exporter computed ahead; \
                 {keep} keeps what it folds",
                counted(others.len(), "parameter is", "parameters are"),
            ));
        }
    }
}

fn counted(n: usize, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
}

fn module(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(module, _)| module)
}

impl<'p> Call<'p> {
    /// The parameter that a node of this call reads in `slot`, an initialiser of `rank` axes.
    pub fn target(&self, node: &Node, slot: usize, rank: usize) -> Option<&'p str> {
        let own = self.parameters.iter().find(|p| **p == node.input[slot]);
        if own.is_some() {
            return own.copied();
        }
        if let [one] = self.parameters[..] {
            return Some(one);
        }
        if node.op_type.ends_with("Normalization") {
            return self.parameters.get(slot.checked_sub(1)?).copied();
        }
        let [first, second] = self.parameters[..] else { return None };
        let (weight, bias) = if self.op == "addmm" { (second, first) } else { (first, second) };
        match (node.op_type.as_str(), slot) {
            ("Add", _) | ("Gemm" | "Conv" | "ConvTranspose", 2) => Some(bias),
            ("Mul", _) => Some(weight),
            ("MatMul" | "Transpose", _) | ("Gemm" | "Conv" | "ConvTranspose", 1) if rank > 1 => {
                Some(weight)
            }
            _ => None,
        }
    }

    /// Whether the module has a parameter or buffer of this name.
    pub fn is_parameter(&self, name: &str) -> bool {
        self.program.has(name)
            || self.program.buffers.contains(name)
            || self.program.constants.contains(name)
    }
}
