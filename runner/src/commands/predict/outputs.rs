//! Outputs of a mini-batch: gathered from ranks, in the order of samples, in the network's shape.

use crate::execute::Output;
use pipewright_core::graph::{Graph, Op};
use pipewright_core::ids::NodeId;

/// What the outputs of a network look like.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Outputs {
    /// Shape of one sample's.
    pub shape: Vec<u64>,
    /// Where the loss reads pixels one after the other, of all classes each: how many pixels and
    /// classes. The network gave an image a class.
    turned: Option<Turned>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Turned {
    pixels: usize,
    classes: usize,
}

impl Outputs {
    /// Those of a network.
    ///
    /// # Panics
    /// When it has no loss: plans train.
    pub fn of(graph: &Graph) -> Self {
        let loss = graph.nodes().iter().find(|node| node.op.is_loss()).expect("plans have a loss");
        let node = |id: NodeId| graph.node(id);
        let read = node(loss.inputs[0]);
        if let (Op::Reshape { shape }, [before]) = (&read.op, &read.inputs[..])
            && let (Op::Permute { axes }, [image]) = (&node(*before).op, &node(*before).inputs[..])
            && let ([pixels, classes], [1, 2, 0]) = (&shape[..], &axes[..])
            && node(*image).output.shape.len() == 3
            && node(*image).output.shape[0] == *classes
        {
            let turned = Turned { pixels: *pixels as usize, classes: *classes as usize };
            return Self { shape: node(*image).output.shape.clone(), turned: Some(turned) };
        }
        Self { shape: read.output.shape.clone(), turned: None }
    }

    /// The values of a mini-batch, sample after sample.
    pub fn in_order(&self, mut parts: Vec<Output>) -> Vec<f32> {
        parts.sort_by_key(|part| part.first_sample);
        let values = parts.into_iter().flat_map(|part| part.values);
        let values: Vec<f32> = values.collect();
        let Some(Turned { pixels, classes }) = self.turned else { return values };
        let images = values.chunks_exact(pixels * classes);
        let planes = images.flat_map(|image| {
            (0..classes).flat_map(move |class| image[class..].iter().step_by(classes))
        });
        planes.copied().collect()
    }
}

/// Outputs as bytes, for a message.
pub(super) fn pack(outputs: &[Output]) -> Vec<u8> {
    let mut bytes = vec![];
    for Output { first_sample, values } in outputs {
        bytes.extend(first_sample.to_le_bytes());
        bytes.extend((values.len() as u64).to_le_bytes());
        bytes.extend_from_slice(bytemuck::cast_slice(values));
    }
    bytes
}

/// The outputs of all ranks' messages.
///
/// # Panics
/// When a message was not made by [`pack`].
pub(super) fn unpack(messages: &[Vec<u8>]) -> Vec<Output> {
    let mut outputs = vec![];
    for mut rest in messages.iter().map(Vec::as_slice) {
        while let Some((head, values)) = rest.split_first_chunk::<16>() {
            let (first, count) = head.split_at(8);
            let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
            let (first_sample, count) = (number(first), number(count) as usize);
            let (mine, others) = values.split_at(4 * count);
            let values = bytemuck::pod_collect_to_vec(mine);
            outputs.push(Output { first_sample, values });
            rest = others;
        }
    }
    outputs
}

#[cfg(test)]
mod tests {
    use super::*;
    use pipewright_core::graph::GraphBuilder;

    #[test]
    fn what_is_packed_comes_back_in_the_order_of_samples() {
        let output =
            |first_sample, values: &[f32]| Output { first_sample, values: values.to_vec() };
        let messages = [
            pack(&[]),
            pack(&[output(4, &[5.0, 6.0]), output(0, &[1.0, 2.0])]),
            pack(&[output(2, &[3.0, 4.0])]),
        ];
        let outputs = Outputs { shape: vec![1], turned: None };
        assert_eq!(outputs.in_order(unpack(&messages)), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }

    #[test]
    fn images_of_classes_are_turned_back() {
        let mut g = GraphBuilder::new("pixels");
        g.layer("all");
        let x = g.input(vec![2, 1, 3]);
        let y = g.add("permute", Op::Permute { axes: vec![1, 2, 0] }, &[x]);
        let y = g.add("reshape", Op::Reshape { shape: vec![3, 2] }, &[y]);
        g.losses(y, 3, 2);
        let outputs = Outputs::of(&g.finish().unwrap());
        assert_eq!(outputs.shape, [2, 1, 3]);
        let read = Output { first_sample: 0, values: vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0] };
        assert_eq!(outputs.in_order(vec![read]), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    }
}
