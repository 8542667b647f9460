//! Names of modules from the names that exporters give.

use super::proto::Node;

/// The path of the module that a node belongs to, as `state_dict` has it; empty when unknown.
///
/// The older exporter writes `/layer1/layer1.0/conv1/Conv`, the newer one keeps a remark
/// `['', 'layer1', 'layer1.0', 'layer1.0.conv1', 'conv2d']`.
pub(super) fn scope(node: &Node) -> String {
    let remark = node.metadata_props.iter().find(|p| p.key == "pkg.torch.onnx.name_scopes");
    if let Some(remark) = remark {
        let parts: Vec<&str> = remark.value.split('\'').skip(1).step_by(2).collect();
        // The last one is the operation.
        return parts.iter().rev().nth(1).map_or(String::new(), |path| (*path).to_string());
    }
    module(&node.name).unwrap_or_default()
}

/// The path of the module in a name such as `/layer1/layer1.0/conv1/Conv`.
pub(super) fn module(name: &str) -> Option<String> {
    let (path, _) = name.strip_prefix('/')?.rsplit_once('/')?;
    Some(dotted(path))
}

/// `encoder/layer.0/output` to `encoder.layer.0.output`: a part that repeats the one before it as
/// its beginning continues it.
fn dotted(path: &str) -> String {
    let mut whole: Vec<&str> = vec![];
    for part in path.split('/') {
        match whole.last() {
            Some(last) if part.strip_prefix(last).is_some_and(|rest| rest.starts_with('.')) => {
                whole.pop();
                whole.push(part);
            }
            _ => whole.push(part),
        }
    }
    whole.join(".")
}

/// Whether an initialiser's name is the exporter's own: `onnx::MatMul_123`, `val_12`, `expand`.
pub(super) fn is_made_up(name: &str) -> bool {
    name.contains("::") || !name.contains('.') && name.chars().any(|c| c == '_' || c == '/')
}

/// The unit of placement that a module belongs to: the path up to its first number, or its first
/// part. `encoder.layer.0.output.dense` belongs to `encoder.layer.0`.
pub(super) fn block(path: &str) -> String {
    let parts: Vec<&str> = path.split('.').collect();
    let numbered = |part: &&str| {
        let digits = part.rsplit('_').next().unwrap_or(part);
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    };
    match parts.iter().position(numbered) {
        Some(at) => parts[..=at].join("."),
        None => parts[0].to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        Node { name: name.into(), ..Default::default() }
    }

    #[test]
    fn paths_are_those_of_the_state_dict() {
        let bert = node("/m/encoder/layer.0/attention/self/query/MatMul");
        assert_eq!(scope(&bert), "m.encoder.layer.0.attention.self.query");
        let mobilenet = node("/features/features.16/conv/conv.1/conv.1.0/Conv");
        assert_eq!(scope(&mobilenet), "features.16.conv.1.0");
        assert_eq!((scope(&node("/Flatten")), scope(&node("Conv_3"))), ("".into(), "".into()));
    }

    #[test]
    fn blocks_end_at_the_first_number() {
        let blocks = ["m.encoder.layer.11.output.dense", "inception3a.branch1", "layer1.0.conv1"];
        assert_eq!(blocks.map(block), ["m.encoder.layer.11", "inception3a", "layer1.0"]);
        assert_eq!(block("encoder.layers.encoder_layer_3.mlp.0"), "encoder.layers.encoder_layer_3");
    }
}
