//! Names: what parameters and layers of a network here are called in transformers' module of it.

use std::fmt;

/// Networks of transformers whose tensors are told by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// GPT-2.
    Gpt2,
    /// LLaMA, Mistral, Qwen, Phi-3, OLMo 2, SmolLM3.
    Llama,
    /// BERT.
    Bert,
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Gpt2 => "GPT-2",
            Family::Llama => "LLaMA's family",
            Family::Bert => "BERT",
        })
    }
}

/// A parameter here, and the tensors of transformers that it is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterpart {
    /// Its name here.
    pub param: String,
    /// Their names, one after the other along the first axis.
    pub parts: Vec<String>,
    /// Whether a part has an index of the first axis, and that axis not: experts.
    pub stacked: bool,
    /// Whether rows here are columns there: GPT-2's linear layers are `Conv1D`.
    pub transposed: bool,
}

/// The counterparts of all parameters of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counterparts {
    /// Which network it is.
    pub family: Family,
    /// In the order in which parameters were given.
    pub all: Vec<Counterpart>,
    /// Whether the network is one of the presets, with names of its own.
    pub is_preset: bool,
}

/// The family that names of tensors, as transformers writes them, belong to.
pub fn family_of<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<Family> {
    names.into_iter().find_map(|name| {
        let ends = |end: &str| name.ends_with(end);
        match () {
            () if ends("attn.c_attn.weight") => Some(Family::Gpt2),
            () if ends("self_attn.q_proj.weight") => Some(Family::Llama),
            () if ends("self_attn.qkv_proj.weight") => Some(Family::Llama),
            () if ends("attention.self.query.weight") => Some(Family::Bert),
            () => None,
        }
    })
}

/// The counterparts of parameters by their names; none where they are of no family.
///
/// # Errors
/// What transformers' network has and the preset has not.
pub fn counterparts(params: &[String]) -> Result<Option<Counterparts>, &'static str> {
    let has = |name: &str| params.iter().any(|param| param == name);
    let preset = |family, of_one: fn(&str) -> Option<Counterpart>| {
        let all = params.iter().map(|param| of_one(param).unwrap_or_else(|| same(param))).collect();
        Ok(Some(Counterparts { family, all, is_preset: true }))
    };
    // Presets of mixtures of experts are no network of transformers: they leave rotary positions out, too.
    if has("h.0.moe.router.weight") {
        return Ok(None);
    }
    if has("h.0.mlp.gate.weight") {
        return Err("LLaMA's presets are for planning: they leave rotary positions out");
    }
    if has("h.0.attn.qkv.weight") {
        return preset(Family::Gpt2, gpt_preset);
    }
    if has("encoder.0.attn.qkv.weight") {
        return preset(Family::Bert, bert_preset);
    }
    let Some(family) = family_of(params.iter().map(String::as_str)) else { return Ok(None) };
    let lead = lead(params);
    let one = |param: &String| {
        let there = param.strip_prefix(lead).unwrap_or(param);
        let found = if family == Family::Gpt2 { conv1d(there) } else { experts(there) };
        Counterpart { param: param.clone(), ..found.unwrap_or_else(|| same(there)) }
    };
    Ok(Some(Counterparts { family, all: params.iter().map(one).collect(), is_preset: false }))
}

/// What stands before transformers' names where the network lies in a module of one's own: `net.`.
fn lead(params: &[String]) -> &str {
    let lists = ["transformer.h.", "model.layers.", "bert.encoder."];
    let at = |param: &&String| lists.iter().find_map(|list| param.find(list));
    params.iter().find_map(|param| Some(&param[..at(&param)?])).unwrap_or_default()
}

/// The same name there.
fn same(param: &str) -> Counterpart {
    let parts = vec![param.into()];
    Counterpart { param: param.into(), parts, stacked: false, transposed: false }
}

/// What stands in the name of a parameter of all experts for their numbers.
pub(super) fn expert_range(count: u64) -> String {
    format!("experts.0-{}", count - 1)
}

/// A parameter of all experts, which each have a matrix there.
fn experts(param: &str) -> Option<Counterpart> {
    let (module, rest) = param.split_once(".experts.0-")?;
    let (last, layer) = rest.split_once('.')?;
    let last: u32 = last.parse().ok()?;
    let parts = (0..=last).map(|expert| format!("{module}.experts.{expert}.{layer}")).collect();
    Some(Counterpart { parts, stacked: true, ..same(param) })
}

/// GPT-2's linear layers in a network with transformers' names.
fn conv1d(param: &str) -> Option<Counterpart> {
    let module = param.strip_suffix(".weight")?.rsplit('.').next()?;
    let transposed = matches!(module, "c_attn" | "c_proj" | "c_fc");
    Some(Counterpart { transposed, ..same(param) })
}

/// `h.3.mlp.fc.weight` as block `3` and `mlp.fc.weight`.
fn block<'a>(param: &'a str, list: &str) -> Option<(&'a str, &'a str)> {
    let (number, rest) = param.strip_prefix(list)?.split_once('.')?;
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some((number, rest))
}

fn gpt_preset(param: &str) -> Option<Counterpart> {
    let there = match (block(param, "h."), param) {
        (Some((number, rest)), _) => {
            let (module, end) = rest.rsplit_once('.')?;
            let module = match module {
                "attn.qkv" => "attn.c_attn",
                "attn.proj" => "attn.c_proj",
                "mlp.fc" => "mlp.c_fc",
                "mlp.proj" => "mlp.c_proj",
                norm => norm,
            };
            format!("transformer.h.{number}.{module}.{end}")
        }
        (None, "embedding.weight") => "transformer.wte.weight".into(),
        (None, "embedding.position_weight") => "transformer.wpe.weight".into(),
        (None, "head.weight") => "lm_head.weight".into(),
        (None, rest) => format!("transformer.{rest}"),
    };
    Some(Counterpart { param: param.into(), ..conv1d(&there).unwrap_or_else(|| same(&there)) })
}

fn bert_preset(param: &str) -> Option<Counterpart> {
    let one = |there: String| Counterpart { param: param.into(), ..same(&there) };
    let Some((number, rest)) = block(param, "encoder.") else {
        let (module, end) = param.rsplit_once('.')?;
        return Some(one(match (module, end) {
            ("embedding", "weight") => "bert.embeddings.word_embeddings.weight".into(),
            ("embedding", "position_weight") => "bert.embeddings.position_embeddings.weight".into(),
            ("embedding", "kind_weight") => "bert.embeddings.token_type_embeddings.weight".into(),
            ("embedding.norm", end) => format!("bert.embeddings.LayerNorm.{end}"),
            ("pooler", end) => format!("bert.pooler.dense.{end}"),
            _ => param.into(),
        }));
    };
    let (module, end) = rest.rsplit_once('.')?;
    let layer = format!("bert.encoder.layer.{number}");
    let module = match module {
        "attn.qkv" => {
            let part = |of: &str| format!("{layer}.attention.self.{of}.{end}");
            let parts = ["query", "key", "value"].map(part).to_vec();
            return Some(Counterpart { parts, ..same(param) });
        }
        "attn.proj" => "attention.output.dense",
        "ln_1" => "attention.output.LayerNorm",
        "mlp.fc" => "intermediate.dense",
        "mlp.proj" => "output.dense",
        "ln_2" => "output.LayerNorm",
        other => other,
    };
    Some(one(format!("{layer}.{module}.{end}")))
}

/// The modules of transformers that a layer of a preset is; none where presets have no such layer.
/// `names` are those of all layers and parameters of the network.
pub fn modules(layer: &str, params: &[String]) -> Option<Vec<String>> {
    let has = |name: &str| params.iter().any(|param| param == name);
    let all = |names: &[&str]| Some(names.iter().map(|name| (*name).to_string()).collect());
    if has("h.0.moe.router.weight") {
        return None;
    }
    let gated = has("h.0.mlp.gate.weight");
    if gated || has("h.0.attn.qkv.weight") {
        return match (layer.strip_prefix("h."), layer) {
            (Some(number), _) if gated => Some(vec![format!("model.layers.{number}")]),
            (Some(number), _) => Some(vec![format!("transformer.h.{number}")]),
            (None, "embedding") if gated => all(&["model.embed_tokens"]),
            (None, "embedding") => all(&["transformer.wte", "transformer.wpe"]),
            (None, "head") if gated => all(&["model.norm", "lm_head"]),
            (None, "head") => all(&["transformer.ln_f", "lm_head"]),
            _ => None,
        };
    }
    if !has("encoder.0.attn.qkv.weight") {
        return None;
    }
    match (layer.strip_prefix("encoder."), layer) {
        (Some(number), _) => Some(vec![format!("bert.encoder.layer.{number}")]),
        (None, "embedding") => all(&["bert.embeddings"]),
        (None, "pooler") => all(&["bert.pooler", "classifier"]),
        _ => None,
    }
}
