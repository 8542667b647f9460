//! From the file's nodes to values with shapes; what can be computed is computed.

mod assume;
mod rewrite;
mod same;

use super::flat;
use super::ir::{Ir, Node, Param, Value};
use super::names;
use super::node::{Attributes, ValueId};
use super::proto::{self, Model, ValueInfo};
use super::shapes::Call;
use super::tensor::{BATCH, Elem, Tensor, count, is_batch};
use super::{Beside, OnnxError, Options, origin::Origins, weights};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// More elements are not computed in all: a network's tables and masks are fewer.
const COMPUTED_MAX: usize = 1 << 26;

/// Initialisers with more elements are read when somebody asks.
const EAGER_MAX: i64 = 1 << 16;

/// Values by name, while the nodes are walked.
struct Walk<'a> {
    ir: Ir<'a>,
    named: BTreeMap<&'a str, ValueId>,
    described: BTreeMap<&'a str, &'a ValueInfo>,
    /// The name that the file has for the batch.
    batch: Option<&'a str>,
    /// Elements of all constants that were computed.
    computed: usize,
    /// Operations that read each value.
    readers: BTreeMap<&'a str, Vec<&'a str>>,
    /// Lists of parts: what is cut, the axis, and where the parts end.
    lists: BTreeMap<&'a str, (ValueId, (i64, Vec<i64>))>,
}

/// Reads the nodes.
pub(super) fn build<'a>(
    model: &'a Model,
    nodes: &'a [proto::Node],
    origins: &'a Origins,
    options: &Options,
    beside: Beside<'a>,
) -> Result<Ir<'a>, OnnxError> {
    let graph = model.graph.as_ref().ok_or(OnnxError::Empty)?;
    let ir = Ir {
        initializers: &graph.initializer,
        origins,
        beside,
        values: vec![],
        nodes: vec![],
        inputs: vec![],
        outputs: vec![],
        uses: vec![],
        fixed: None,
        warnings: origins.warnings.clone(),
    };
    let infos = graph.value_info.iter().chain(&graph.output);
    let described = infos.map(|info| (info.name.as_str(), info)).collect();
    let mut readers: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in nodes {
        for input in &node.input {
            readers.entry(input).or_default().push(&node.op_type);
        }
    }
    let mut walk = Walk {
        ir,
        named: BTreeMap::new(),
        described,
        batch: None,
        computed: 0,
        readers,
        lists: BTreeMap::new(),
    };
    walk.initializers()?;
    walk.inputs(&graph.input, options)?;
    walk.sizes(&graph.input, options)?;
    for node in nodes {
        walk.node(node);
    }
    for output in &graph.output {
        let id = walk.named.get(output.name.as_str()).copied();
        let id = id.ok_or_else(|| OnnxError::Missing {
            node: "(output)".into(),
            value: output.name.clone(),
        })?;
        walk.ir.outputs.push(id);
    }
    Ok(walk.ir)
}

/// Names that exist before the first node.
pub(super) fn known(model: &Model) -> BTreeSet<&str> {
    let graph = model.graph.iter();
    let names = graph.flat_map(|g| {
        let initializers = g.initializer.iter().map(|t| t.name.as_str());
        initializers.chain(g.input.iter().map(|i| i.name.as_str()))
    });
    names.filter(|name| !name.is_empty()).collect()
}

impl<'a> Walk<'a> {
    fn add(&mut self, name: &'a str, value: Value) -> ValueId {
        self.ir.values.push(value);
        let id = self.ir.values.len() - 1;
        if !name.is_empty() {
            self.named.insert(name, id);
        }
        id
    }

    fn initializers(&mut self) -> Result<(), OnnxError> {
        let mut elsewhere: Vec<&proto::Tensor> = vec![];
        for (initializer, tensor) in self.ir.initializers.iter().enumerate() {
            let refuse = |why: String| OnnxError::Tensor { name: tensor.name.clone(), why };
            let elements = count(&tensor.dims).filter(|n| *n < 1 << 36);
            let elements =
                elements.ok_or_else(|| refuse(format!("has sizes {:?}", tensor.dims)))?;
            let elem = Elem::of(tensor.data_type)
                .ok_or_else(|| refuse(format!("type {} is no number", tensor.data_type)))?;
            weights::check(tensor, elements.unsigned_abs())?;
            let shape = tensor.dims.clone();
            // One number without a path of a module is what an exporter writes for a constant.
            let weight = elem == Elem::Float
                && (elements > 1 || tensor.name.contains('.'))
                && !self.ir.origins.constants.contains(&tensor.name);
            let axes = (0..shape.len()).collect();
            let param = Param { initializer, shape: shape.clone(), axes };
            let eager = !weight || elements <= EAGER_MAX;
            let constant = if eager { self.ir.initial(initializer).map(Rc::new) } else { None };
            if !weight && constant.is_none() {
                match tensor.data_location {
                    1 => elsewhere.push(tensor),
                    _ => return Err(refuse(format!("has not {elements} elements"))),
                }
            }
            let value = Value {
                name: tensor.name.clone(),
                shape: Some(shape),
                elem,
                constant,
                param: weight.then_some(param),
                producer: None,
            };
            self.add(&tensor.name, value);
        }
        if let Some(first) = elsewhere.first() {
            let place = first.external_data.iter().find(|entry| entry.key == "location");
            self.ir.warnings.push(format!(
                "{} constants, such as `{}`, are in `{}`, which cannot be read here; what needs them \
                 is opaque",
                elsewhere.len(),
                first.name,
                place.map_or("", |entry| &entry.value)
            ));
        }
        Ok(())
    }

    fn inputs(&mut self, inputs: &'a [ValueInfo], options: &Options) -> Result<(), OnnxError> {
        for info in inputs {
            // Old files list initialisers among the inputs.
            if self.named.contains_key(info.name.as_str()) {
                continue;
            }
            let (elem, mut shape) = self.input_shape(info, options)?;
            match shape.first_mut() {
                Some(first) if *first != BATCH => {
                    let n = *first;
                    if self.ir.fixed.is_some_and(|fixed| fixed != n) {
                        let input = info.name.clone();
                        return Err(OnnxError::Batch { input, size: n });
                    }
                    self.ir.fixed = Some(n);
                    *first = BATCH;
                }
                _ => {}
            }
            let constant = assume::full_length(&info.name, elem, &shape).map(Rc::new);
            let live = constant.is_none();
            if !live {
                let all = "is taken as exporters' examples have it: no padding, one segment, positions in order";
                self.ir.warnings.push(format!("input `{}` {all}", info.name));
            }
            let name = info.name.clone();
            let value =
                Value { name, shape: Some(shape), elem, constant, param: None, producer: None };
            let id = self.add(&info.name, value);
            if live {
                self.ir.inputs.push(id);
            }
        }
        match self.ir.inputs.is_empty() {
            true => Err(OnnxError::Inputs { names: String::new() }),
            false => Ok(()),
        }
    }

    /// Refuses sizes by names that the file has not, and one for the batch.
    fn sizes(&self, inputs: &[ValueInfo], options: &Options) -> Result<(), OnnxError> {
        let shapes = inputs
            .iter()
            .filter_map(|info| info.r#type.as_ref()?.tensor_type.as_ref()?.shape.as_ref());
        let named = shapes.flat_map(|shape| &shape.dim).filter_map(|dim| dim.dim_param.as_deref());
        let open: BTreeSet<&str> = named.filter(|name| Some(*name) != self.batch).collect();
        match options.sizes.keys().find(|name| !open.contains(name.as_str())) {
            None => Ok(()),
            Some(name) => {
                let open: Vec<&str> = open.into_iter().collect();
                Err(OnnxError::Unknown { name: name.clone(), open: open.join(", ") })
            }
        }
    }

    fn input_shape(
        &mut self,
        info: &'a ValueInfo,
        options: &Options,
    ) -> Result<(Elem, Vec<i64>), OnnxError> {
        let refuse = |why: String| OnnxError::Input { name: info.name.clone(), why };
        let tensor = info.r#type.as_ref().and_then(|t| t.tensor_type.as_ref());
        let tensor = tensor.ok_or_else(|| refuse("is no tensor".into()))?;
        let elem = Elem::of(tensor.elem_type)
            .ok_or_else(|| refuse(format!("has elements of type {}", tensor.elem_type)))?;
        let dims = tensor.shape.as_ref().map(|s| s.dim.as_slice()).unwrap_or_default();
        if dims.is_empty() {
            return Err(refuse("has no axes; the first one must be the batch".into()));
        }
        let mut shape = vec![];
        for (axis, dim) in dims.iter().enumerate() {
            let named = dim.dim_param.as_deref().filter(|name| !name.is_empty());
            let size = match (dim.dim_value, named) {
                (Some(n), _) if (1..1 << 32).contains(&n) => n,
                (Some(n), _) => return Err(refuse(format!("has size {n} in axis {axis}"))),
                (None, name) if axis == 0 => {
                    self.batch = name;
                    BATCH
                }
                (None, name) => {
                    let given = name.and_then(|name| options.sizes.get(name));
                    let given = given.or_else(|| options.sample.get(axis - 1)).copied();
                    let given = given.and_then(|n| i64::try_from(n).ok()).filter(|n| *n > 0);
                    given.ok_or_else(|| {
                        let name = name.unwrap_or("?").to_string();
                        OnnxError::Open { input: info.name.clone(), axis, name }
                    })?
                }
            };
            shape.push(size);
        }
        match count(&shape).filter(|n| *n < 1 << 56) {
            Some(_) => Ok((elem, shape)),
            None => Err(refuse(format!("is too large: {:?}", &shape[1..]))),
        }
    }

    fn node(&mut self, proto: &'a proto::Node) {
        let standard = matches!(proto.domain.as_str(), "" | "ai.onnx" | "com.microsoft");
        let mut op = match standard {
            true => proto.op_type.clone(),
            false => format!("{}.{}", proto.domain, proto.op_type),
        };
        let find = |name: &String| self.named.get(name.as_str()).copied();
        let mut inputs: Vec<Option<ValueId>> = proto.input.iter().map(find).collect();
        while inputs.last().is_some_and(Option::is_none) {
            inputs.pop();
        }
        let mut attributes = Attributes::new(proto.attribute.clone());
        if op == "Split" && attributes.int("num_outputs").is_none() {
            attributes.set_int("num_outputs", proto.output.len() as i64);
        }
        if self.rewrite(&mut op, &mut attributes, &mut inputs, proto) {
            return;
        }
        if let Some(same) = self.alias(&op, &attributes, &inputs) {
            self.rename(same, &proto.output);
            return;
        }
        if self.padding(&op, &inputs, proto)
            || self.known_shape(&op, &attributes, &inputs, proto)
            || self.view(&op, &attributes, &inputs, proto)
        {
            return;
        }
        let folded = self.fold(&op, &attributes, &inputs).filter(|tensors| {
            self.computed += tensors.iter().map(Tensor::stored).sum::<usize>();
            self.computed <= COMPUTED_MAX
        });
        // A weight, or computed from one.
        let weights = inputs.iter().flatten().any(|id| {
            let value = &self.ir.values[*id];
            value.param.is_some() || value.producer.is_some()
        });
        // Sines are tables, never weights.
        if let Some(tensors) = &folded
            && (!weights || matches!(op.as_str(), "Sin" | "Cos"))
        {
            for (name, tensor) in proto.output.iter().zip(tensors) {
                self.constant(name, tensor.clone());
            }
            return;
        }
        let name = flat::label(proto);
        let scope = names::scope(proto);
        self.live(proto, Node { name, op, attributes, inputs, outputs: vec![], scope }, folded);
    }

    /// A node that stays; `folded` are its values where they happen to be known.
    fn live(&mut self, proto: &'a proto::Node, node: Node, folded: Option<Vec<Tensor>>) {
        let call =
            Call { ir: &self.ir, op: &node.op, attributes: &node.attributes, inputs: &node.inputs };
        let mut shapes = call.infer().unwrap_or_default().into_iter();
        let first = node.inputs.first().copied().flatten();
        let elem = match node.op.as_str() {
            "Equal" | "Less" | "Greater" | "LessOrEqual" | "GreaterOrEqual" | "Not" | "IsNaN" => {
                Elem::Bool
            }
            "ArgMax" | "ArgMin" | "Shape" => Elem::Int,
            "Cast" => {
                let to = node.attributes.int("to").and_then(|to| i32::try_from(to).ok());
                to.and_then(Elem::of).unwrap_or(Elem::Float)
            }
            "Where" => node
                .inputs
                .get(1)
                .copied()
                .flatten()
                .map_or(Elem::Float, |id| self.ir.values[id].elem),
            _ => first.map_or(Elem::Float, |id| self.ir.values[id].elem),
        };
        let producer = Some(self.ir.nodes.len());
        let mut folded = folded.into_iter().flatten();
        let mut outputs = vec![];
        for name in &proto.output {
            let shape = shapes.next().or_else(|| self.described_shape(name));
            let constant = folded.next().map(Rc::new);
            let value = Value { name: name.clone(), shape, elem, constant, param: None, producer };
            outputs.push(self.add(name, value));
        }
        self.ir.nodes.push(Node { outputs, ..node });
    }

    /// The shape that the file tells, with the batch in front.
    fn described_shape(&self, name: &str) -> Option<Vec<i64>> {
        let tensor = self.described.get(name)?.r#type.as_ref()?.tensor_type.as_ref()?;
        let dims = &tensor.shape.as_ref()?.dim;
        let size = |(axis, dim): (usize, &proto::Dimension)| match dim.dim_value {
            Some(n) if axis == 0 && self.ir.fixed == Some(n) => Some(BATCH),
            Some(n) => (n > 0 && n < 1 << 32).then_some(n),
            None => {
                let batch = dim.dim_param.is_some() && dim.dim_param.as_deref() == self.batch;
                batch.then_some(BATCH)
            }
        };
        let shape: Option<Vec<i64>> = dims.iter().enumerate().map(size).collect();
        shape.filter(|shape| count(shape).is_some())
    }

    fn constant(&mut self, name: &'a str, tensor: Tensor) {
        let (shape, elem) = (Some(tensor.shape.clone()), tensor.elem);
        let constant = Some(Rc::new(tensor));
        let value = Value { name: name.into(), shape, elem, constant, param: None, producer: None };
        self.add(name, value);
    }

    fn fold(
        &self,
        op: &str,
        attributes: &Attributes,
        inputs: &[Option<ValueId>],
    ) -> Option<Vec<Tensor>> {
        let known: Vec<Option<Rc<Tensor>>> = inputs
            .iter()
            .map(|id| match id {
                None => Some(None),
                Some(id) => self.ir.values[*id].constant.clone().map(Some),
            })
            .collect::<Option<_>>()?;
        let tensors: Vec<Option<&Tensor>> = known.iter().map(Option::as_deref).collect();
        super::fold::fold(op, attributes, &tensors)
            .or_else(|| self.fold_opened(op, attributes, &tensors))
    }

    /// As [`Self::fold`], where a constant of the file's fixed batch meets the batch.
    fn fold_opened(
        &self,
        op: &str,
        attributes: &Attributes,
        inputs: &[Option<&Tensor>],
    ) -> Option<Vec<Tensor>> {
        let n = self.ir.fixed.filter(|n| *n > 1)?;
        inputs.iter().flatten().find(|t| t.shape.iter().any(|size| is_batch(*size)))?;
        let opened = |at: usize, tensor: &Tensor| match (op, at) {
            ("Expand", 1) => {
                tensor.map_first(|first| if first == n as f64 { BATCH as f64 } else { first })
            }
            _ => tensor.opened(n),
        };
        let inputs: Vec<Option<Tensor>> = inputs
            .iter()
            .enumerate()
            .map(|(at, t)| t.map(|t| opened(at, t).unwrap_or_else(|| t.clone())))
            .collect();
        let inputs: Vec<Option<&Tensor>> = inputs.iter().map(Option::as_ref).collect();
        super::fold::fold(op, attributes, &inputs)
    }
}
