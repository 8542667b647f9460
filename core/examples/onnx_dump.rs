//! scratch
use pipewright_core::onnx::{read, Options, Loss};
fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let verbose = args.first().is_some_and(|a| a == "-v");
    if verbose { args.remove(0); }
    for f in args {
        let bytes = std::fs::read(&f).unwrap();
        let loss = if f.contains("unet") { Loss::MeanSquaredError } else { Loss::CrossEntropy };
        match read(bytes, &Options { loss, ..Default::default() }) {
            Err(e) => println!("{f}: ERROR {e}"),
            Ok(i) => {
                let g = &i.graph;
                let sdp = g.nodes().iter().filter(|n| n.op.name() == "scaled_dot_product").count();
                println!("{f}: {} nodes, {} params, {} trainable, {} layers, sdp {sdp}, unsupported {}", g.nodes().len(), g.params().len(), g.trainable_elements(), g.layers().len(), i.unsupported.len());
                for u in &i.unsupported { println!("   {} {}: {}", u.op, u.node, u.why); }
                for u in &i.warnings { println!("   warning {u}"); }
                if verbose {
                    for (k, n) in g.nodes().iter().enumerate() {
                        if let Some(l) = g.layers().iter().find(|l| l.first_node.0 == k as u32) { println!("== {}", l.name); }
                        println!("  {k} {} {:?} {:?} {} {:?}", n.name, n.op, n.inputs.iter().map(|i| i.0).collect::<Vec<_>>(), n.output, n.params.iter().map(|p| (g.param(*p).name.clone(), g.param(*p).trainable)).collect::<Vec<_>>());
                    }
                }
            }
        }
    }
}
