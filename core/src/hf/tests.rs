//! Configurations that can be read, fields that cannot, and names both ways.

use super::*;
use crate::graph::TargetSpec;
use crate::graph::presets::Preset;

const LLAMA: &str = r#"{"model_type": "llama", "vocab_size": 20, "hidden_size": 12,
    "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "hidden_act": "silu""#;

fn llama(more: &str) -> Result<Imported, HfError> {
    read("net", &format!("{LLAMA}{more}}}"), Some(8))
}

fn params(graph: &Graph) -> Vec<String> {
    graph.params().iter().map(|param| param.name.clone()).collect()
}

#[test]
fn a_decoder_has_the_names_of_its_modules() {
    let graph = llama("").unwrap().graph;
    let names = params(&graph);
    for name in
        ["model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.weight", "lm_head.weight"]
    {
        assert!(names.iter().any(|param| param == name), "{name}: {names:?}");
    }
    let layers: Vec<&str> = graph.layers().iter().map(|layer| layer.name.as_str()).collect();
    let expected =
        ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "lm_head"];
    assert_eq!(layers, expected);
    let q = graph.params().iter().find(|p| p.name.ends_with("0.self_attn.q_proj.weight")).unwrap();
    assert_eq!(q.shape, [16, 12]);
    assert_eq!(graph.sample().unwrap().target, TargetSpec::Classes { count: 8, classes: 20 });
    let open = read("net", &format!("{LLAMA}}}"), None).unwrap();
    assert_eq!((open.length, open.length_max), (2048, 4096));
}

#[test]
fn what_cannot_be_expressed_is_named() {
    let error = |more: &str| llama(more).unwrap_err().to_string();
    let starts = |more: &str, text: &str| {
        let error = error(more);
        assert!(error.starts_with(text), "{error}");
    };
    starts(r#", "hidden_act": "gelu""#, "`hidden_act` is \"gelu\": the gate is a SiLU");
    starts(r#", "rope_scaling": {"rope_type": "llama3"}"#, "`factor` is missing");
    starts(r#", "rope_scaling": {"type": "linear", "factor": 0}"#, "`factor` is 0: a positive");
    starts(r#", "rope_scaling": {"rope_type": "longrope"}"#, "`rope_type` is \"longrope\": rotary");
    starts(
        r#", "model_type": "smollm3", "no_rope_layers": [1]"#,
        "`no_rope_layers` is [1]: there are 2",
    );
    starts(
        r#", "model_type": "smollm3", "no_rope_layers": [2]"#,
        "`no_rope_layers` is [2]: a list",
    );
    starts(
        r#", "model_type": "deepseek_v3", "n_routed_experts": 8"#,
        "`model_type` is \"deepseek_v3\": mixtures of experts of this kind cannot be read; gpt2, llama",
    );
    let qwen = r#", "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 6"#;
    llama(&format!(r#"{qwen}, "mlp_only_layers": [], "decoder_sparse_step": 1"#)).unwrap();
    starts(
        &format!(r#"{qwen}, "mlp_only_layers": [1]"#),
        "`mlp_only_layers` is [1]: experts in some",
    );
    starts(
        &format!(r#"{qwen}, "decoder_sparse_step": 2"#),
        "`decoder_sparse_step` is 2: experts in",
    );
    starts(
        r#", "model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 3"#,
        "`num_experts_per_tok` is 3: there are 2 experts",
    );
    starts(
        r#", "model_type": "mixtral", "output_router_logits": true"#,
        "`output_router_logits` is true: there is no loss",
    );
    starts(
        r#", "model_type": "gemma3", "text_config": {}"#,
        "`model_type` is \"gemma3\": of networks for",
    );
    starts(r#", "rope_parameters": {"rope_type": "yarn"}"#, "`rope_type` is \"yarn\"");
    starts(r#", "partial_rotary_factor": 0.3"#, "`partial_rotary_factor` is 0.3: an even number");
    starts(r#", "num_key_value_heads": 3"#, "`num_key_value_heads` is 3: it does not divide");
    starts(r#", "rms_norm_eps": "x""#, "`rms_norm_eps` is \"x\": a positive number");
    starts(r#", "quantization_config": {}"#, "`quantization_config` is {}");
    starts(r#", "vocab_size": null"#, "`vocab_size` is missing");
    starts(r#", "vocab_size": 0"#, "`vocab_size` is 0: a number from 1");
    starts(r#", "model_type": "t5""#, "`model_type` is \"t5\": gpt2, llama");
    starts(
        r#", "max_position_embeddings": 7"#,
        "8 tokens of a sample, the network takes at most 7",
    );
    starts(r#", "model_type": "mistral", "sliding_window": 7"#, "`sliding_window` is 7: attention");
    starts(
        r#", "model_type": "qwen2", "use_sliding_window": true, "sliding_window": 4"#,
        "`sliding_window`",
    );
    llama(r#", "model_type": "mistral", "sliding_window": 8"#).unwrap();
    llama(r#", "model_type": "qwen2", "sliding_window": 4"#).unwrap();
    for text in ["", "[]", "{", "3"] {
        assert!(matches!(read("net", text, None), Err(HfError::File(_))), "{text}");
    }
}

/// The file of the hub has three matrices an expert; here each kind is one parameter.
#[test]
fn experts_are_the_parts_of_a_parameter() {
    let graph = llama(r#", "model_type": "mixtral", "num_local_experts": 3"#).unwrap().graph;
    let names = params(&graph);
    let found = counterparts(&names).unwrap().unwrap();
    assert_eq!((found.family, found.is_preset), (Family::Llama, false));
    let w2 = "model.layers.1.block_sparse_moe.experts.0-2.w2.weight";
    let at = names.iter().position(|name| name == w2).unwrap();
    assert_eq!(graph.params()[at].shape, [3, 12, 16]);
    let part = |expert| format!("model.layers.1.block_sparse_moe.experts.{expert}.w2.weight");
    assert_eq!(found.all[at].parts, [part(0), part(1), part(2)]);
    assert!(found.all[at].stacked);
    let router = found.all.iter().find(|one| one.param.ends_with("moe.gate.weight")).unwrap();
    assert!(!router.stacked && router.parts.len() == 1);
    assert_eq!(found.all.iter().map(|one| one.parts.len()).sum::<usize>(), 3 + 2 * (4 + 2 + 1 + 9));
}

#[test]
fn parameters_of_presets_have_counterparts() {
    let of = |preset: &str| {
        let graph = preset.parse::<Preset>().unwrap().graph().unwrap();
        counterparts(&params(&graph))
    };
    let find = |all: &Counterparts, param: &str| {
        all.all.iter().find(|counterpart| counterpart.param == param).unwrap().clone()
    };
    let gpt = of("gpt2").unwrap().unwrap();
    assert_eq!((gpt.family, gpt.is_preset), (Family::Gpt2, true));
    let qkv = find(&gpt, "h.11.attn.qkv.weight");
    assert_eq!(qkv.parts, ["transformer.h.11.attn.c_attn.weight"]);
    assert!(qkv.transposed);
    assert!(!find(&gpt, "h.0.attn.qkv.bias").transposed);
    assert!(!find(&gpt, "embedding.weight").transposed);
    assert_eq!(find(&gpt, "embedding.position_weight").parts, ["transformer.wpe.weight"]);
    assert_eq!(find(&gpt, "ln_f.bias").parts, ["transformer.ln_f.bias"]);
    let bert = of("bert-base").unwrap().unwrap();
    let parts = find(&bert, "encoder.3.attn.qkv.bias").parts;
    let query = "bert.encoder.layer.3.attention.self.query.bias";
    assert_eq!((parts.len(), parts[0].as_str()), (3, query));
    assert_eq!(find(&bert, "pooler.weight").parts, ["bert.pooler.dense.weight"]);
    assert_eq!(find(&bert, "classifier.bias").parts, ["classifier.bias"]);
    assert!(of("llama-7b").unwrap_err().contains("rotary"));
    assert_eq!(of("resnet18"), Ok(None));
    let own = ["net.lm_head.weight", "net.transformer.h.0.attn.c_attn.weight"].map(String::from);
    let own = counterparts(&own).unwrap().unwrap();
    assert_eq!(own.all[0].parts, ["lm_head.weight"]);
    assert_eq!(own.all[1].parts, ["transformer.h.0.attn.c_attn.weight"]);
    assert!(own.all[1].transposed && !own.is_preset);
    let mut there: Vec<String> = bert.all.into_iter().flat_map(|one| one.parts).collect();
    assert_eq!(family_of(there.iter().map(String::as_str)), Some(Family::Bert));
    let count = there.len();
    there.sort();
    there.dedup();
    assert_eq!(there.len(), count, "no tensor is two parameters");
}
