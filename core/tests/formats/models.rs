//! Presets against published sizes: parameters exactly where they were published exactly.

use pipewright_core::graph::presets::{PRESETS, Preset, Transformer};
use pipewright_core::graph::{Graph, Op};

fn graph(name: &str) -> Graph {
    let preset: Preset = name.parse().unwrap_or_else(|e| panic!("{e}"));
    preset.graph().unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn parameters(name: &str) -> u64 {
    graph(name).trainable_elements()
}

#[test]
fn parameters_are_exactly_the_published_ones() {
    let published = [
        // torchvision's model pages; GoogLeNet without its auxiliary classifiers.
        ("alexnet", 61_100_840),
        ("googlenet", 6_624_904),
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("resnet101", 44_549_160),
        ("resnet152", 60_192_808),
        // Caffe's bvlc_reference_caffenet.
        ("caffenet", 60_965_224),
        // The models on the Hugging Face hub; BERT with the 2 x (hidden + 1) of its classifier.
        ("bert-base", 109_482_240 + 2 * 769),
        ("bert-large", 335_141_888 + 2 * 1025),
        ("gpt2", 124_439_808),
        ("gpt2-medium", 354_823_168),
        ("gpt2-large", 774_030_080),
        ("gpt2-xl", 1_557_611_200),
        ("llama-7b", 6_738_415_616),
        ("llama-13b", 13_015_864_320),
        ("llama-70b", 68_976_648_192),
        ("mixtral-8x7b", 46_702_792_704),
    ];
    for (name, expected) in published {
        assert_eq!(parameters(name), expected, "{name}");
    }
}

#[test]
fn parameters_are_the_published_ones_to_the_digits_given() {
    // torchgpipe's benchmarks, docs/benchmarks.rst; Megatron-LM's 174.6 B for GPT-3.
    let published = [
        ("unet:6,72", 362.2e6, 0.05e6),
        ("unet:11,128", 2.21e9, 0.005e9),
        ("unet:24,128", 4.99e9, 0.005e9),
        ("unet:24,160", 7.80e9, 0.005e9),
        ("unet:48,160", 15.82e9, 0.005e9),
        ("amoebanet-d:18,208", 81.5e6, 0.05e6),
        ("amoebanet-d:18,416", 319.0e6, 0.05e6),
        ("amoebanet-d:18,544", 542.7e6, 0.05e6),
        ("amoebanet-d:36,544", 1.06e9, 0.005e9),
        ("amoebanet-d:72,512", 1.84e9, 0.005e9),
        ("gpt3-175b", 174.6e9, 0.05e9),
    ];
    for (name, expected, rounding) in published {
        let found = parameters(name) as f64;
        assert!((found - expected).abs() <= rounding, "{name}: {found}, published {expected}");
    }
}

#[test]
fn convolutional_work_is_the_published_one() {
    // torchvision's GFLOPS column counts multiply-adds of convolutions and products.
    let published = [
        ("alexnet", 0.71),
        ("googlenet", 1.50),
        ("vgg16", 15.47),
        ("vgg19", 19.63),
        ("resnet18", 1.81),
        ("resnet50", 4.09),
        ("resnet101", 7.80),
        ("resnet152", 11.51),
    ];
    for (name, expected) in published {
        let graph = graph(name);
        let products = |op: &Op| matches!(op, Op::Conv2d { .. } | Op::Linear { .. });
        let of =
            |n: &pipewright_core::graph::Node| n.op.forward_flops(&graph.input_specs(n), &n.output);
        let work: u64 = graph.nodes().iter().filter(|n| products(&n.op)).map(of).sum();
        let giga = work as f64 / 2e9;
        assert!((giga - expected).abs() < 0.0051, "{name}: {giga}");
        let all = graph.forward_flops();
        assert!(all >= work && (all as f64) < 1.05 * work as f64, "{name}: the rest is small");
    }
}

#[test]
fn transformers_work_is_the_formula() {
    // Narayanan et al. 2021: 96 B s l h^2 (1 + s/(6h) + V/(16 l h)) with recomputation, whose
    // forward pass alone is 24 s l h^2 (1 + s/(6h)) + 2 s h V a sample.
    for name in ["gpt2", "gpt2-xl", "gpt3-175b"] {
        let preset: Preset = name.parse().unwrap();
        let numbers: [(&str, [f64; 4]); 3] = [
            ("gpt2", [12.0, 768.0, 1024.0, 50_257.0]),
            ("gpt2-xl", [48.0, 1600.0, 1024.0, 50_257.0]),
            ("gpt3-175b", [96.0, 12_288.0, 2048.0, 50_257.0]),
        ];
        let [l, h, s, v] = numbers.iter().find(|n| n.0 == name).unwrap().1;
        let expected = 24.0 * s * l * h * h * (1.0 + s / (6.0 * h)) + 2.0 * s * h * v;
        let found = preset.graph().unwrap().forward_flops() as f64;
        // Norms, GELU and softmax are not in the formula.
        assert!(found > expected && found < 1.02 * expected, "{name}: {}", found / expected);
    }
}

#[test]
fn a_transformer_by_numbers_is_the_named_one() {
    let same = |numbers: &str, name: &str| {
        let (a, b) = (graph(numbers), graph(name));
        assert_eq!(a.nodes(), b.nodes(), "{name}");
        assert_eq!(a.layers(), b.layers(), "{name}");
    };
    let gpt2 = "transformer:layers=12,hidden=768,heads=12,sequence=1024,vocabulary=50257,tied";
    same(gpt2, "gpt2");
    let llama = "transformer:layers=80,hidden=8192,heads=64,kv=8,ffn=28672,sequence=4096,\
                 vocabulary=32000,gated";
    same(llama, "llama-70b");
    // LLaMA's rule for its inner size, 2/3 of four times the hidden one to the next 256.
    same(
        "transformer:layers=32,hidden=4096,heads=32,sequence=2048,vocabulary=32000,gated",
        "llama-7b",
    );
    same(
        "transformer:layers=32,hidden=4096,heads=32,kv=8,ffn=14336,sequence=4096,vocabulary=32000,gated,\
         experts=8,top_k=2,capacity=1.25",
        "mixtral-8x7b",
    );
    let untied = parameters(&gpt2.replace(",tied", ""));
    assert_eq!(untied - parameters("gpt2"), 50_257 * 768, "the head's own table");
    let Ok(Preset::Transformer(Transformer { kv_heads, ffn, .. })) = gpt2.parse() else {
        panic!("a transformer");
    };
    assert_eq!((kv_heads, ffn), (12, 3072));
}

#[test]
fn tied_tables_are_counted_once_but_held_where_they_are_used() {
    let graph = graph("gpt2");
    let held: u64 = graph.params().iter().map(|p| p.elements()).sum();
    assert_eq!(held - graph.trainable_elements(), 50_257 * 768);
}

/// Of Mixtral's 46.7 billion parameters a token takes 12.9 (Jiang et al. 2024), here a quarter more of its experts'.
#[test]
fn a_mixture_works_with_the_experts_that_tokens_take() {
    let (mixture, dense) = (graph("mixtral-8x7b"), graph("llama-7b"));
    let of = |graph: &Graph, name: &str| {
        let node = graph.nodes().iter().find(|node| node.name == name).unwrap();
        node.op.forward_flops(&graph.input_specs(node), &node.output) as f64
    };
    let rows = 8.0 * (2.0f64 * 4096.0 * 1.25 / 8.0).ceil();
    assert_eq!(of(&mixture, "h.0.moe.experts.up"), 2.0 * rows * 4096.0 * 14_336.0);
    assert_eq!(of(&dense, "h.0.mlp.up"), 2.0 * 2048.0 * 4096.0 * 11_008.0);
    let expert = 3.0 * 4096.0 * 14_336.0;
    let taken = 46_702_792_704.0 - 32.0 * 6.0 * expert;
    assert!((taken - 12.9e9f64).abs() < 0.05e9, "{taken}");
    // Products of what is taken and of the capacity's quarter; attention, softmax and the table are the rest.
    let products = 2.0 * 4096.0 * (taken + 0.25 * 32.0 * 2.0 * expert);
    let found = mixture.forward_flops() as f64;
    assert!(found > products * 0.97 && found < 1.1 * products, "{}", found / products);
    // Written back as it is read: of the numbers of experts only where there are some.
    for text in [
        "experts=4,top_k=1,capacity=0.75",
        "experts=8,top_k=2,capacity=2",
        "experts=2,top_k=2,capacity=1.05",
    ] {
        let text = format!(
            "transformer:layers=2,hidden=8,heads=2,kv=2,ffn=32,sequence=4,vocabulary=9,{text},tied"
        );
        assert_eq!(text.parse::<Preset>().unwrap().to_string(), text);
    }
}

#[test]
fn layers_are_natural_units() {
    let layers = |name: &str| graph(name).layers().len();
    assert_eq!(layers("gpt3-175b"), 1 + 96 + 1);
    assert_eq!(layers("bert-large"), 1 + 24 + 1);
    assert_eq!(layers("googlenet"), 1 + 9 + 1);
    assert_eq!(layers("resnet152"), 1 + 50 + 1);
    // Stem of three, three times six normal cells, two reductions, the classifier.
    assert_eq!(layers("amoebanet-d:18,208"), 3 + 18 + 2 + 1);
    // Five levels down and up with six convolutions each, the bottleneck's six; ups; the end.
    assert_eq!(layers("unet:6,72"), 5 * 6 + 6 + 5 * (1 + 6) + 1);
}

#[test]
fn every_preset_has_one_sample_one_target_one_loss() {
    for preset in PRESETS {
        let graph = preset.graph().unwrap();
        let count = |f: fn(&Op) -> bool| graph.nodes().iter().filter(|n| f(&n.op)).count();
        let counts = (count(Op::is_sample), count(Op::is_target), count(Op::is_loss));
        assert_eq!(counts, (1, 1, 1), "{preset}");
        assert_eq!(graph.name(), preset.to_string());
        let text = serde_json::to_string(&graph).unwrap();
        assert_eq!(serde_json::from_str::<Graph>(&text).unwrap(), graph, "{preset}");
    }
}
