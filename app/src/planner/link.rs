//! The state as a link: `#v=1&model=vgg16&cluster=reedbush-l&d=4&mb=8`. Inputs only, never
//! results; what equals the first picture is left out.
//!
//! | word | meaning |
//! |---|---|
//! | `v` | version of the link, 1 |
//! | `model`, `cluster` | names of presets |
//! | `d` | stages, cut for equal time; left out where `cuts` are given |
//! | `cuts` | first nodes of the stages after the first: `4,8,11` |
//! | `batch`, `mb` | samples of a step, micro-batches |
//! | `s` | schedule |
//! | `precision` | number formats: f32, tf32, bf16, f16, fp8 |
//! | `replicas` | copies of the pipeline |
//! | `zero` | 1: replicas divide what the optimizer keeps; 2: gradients too |
//! | `experts` | replicas that divide the experts of a mixture |
//! | `tensor` | ranks that divide each lane's work |
//! | `codec`, `hosts`, `edges` | how gradients travel, 1: between hosts only; how values across nodes |
//! | `view` | a screen; `recompute` with `stage` and `keep`, the percentage of memory to keep |
//! | `play` | choices of the Playground: see `screens/playground/model/link.rs` |
//! | `job` | events and policies of the Elastic view: see `screens/elastic/model/link.rs` |
//! | `a` | what it is compared with: a link without `v`, escaped; the first picture where it is empty |
//! | `p`, `pa` | the whole plan and what it is compared with, packed, in place of all inputs above |
//! | `embed` | 1: the timeline alone, for a frame in another page |
//! | `story` | what is told of it: see `stories.rs` |
//! | `plan`, `trace` | files beside the page to load |

use super::choices::{ClusterChoice, ModelChoice};
use super::engine::{self, Ground};
use super::inputs::Inputs;
use super::presets;
use crate::base::screen::Screen;
use crate::base::texts::{said, t, tr};
use crate::base::words::unescape;
use pipewright_core::compress::{CodecKind, Reduction};
use pipewright_core::graph::Precision;
use pipewright_core::schedule::ScheduleKind;

/// What a link says.
#[derive(Debug, PartialEq)]
pub struct Link {
    pub inputs: Inputs,
    pub files: Files,
    /// The name of what is told of it; empty for nothing.
    pub story: String,
    /// Whether only the timeline is shown, in a frame of another page.
    pub embed: bool,
    /// What is to be shown.
    pub screen: Screen,
    pub asked: Asked,
    /// What the Playground is asked, which reads it itself.
    pub play: String,
    /// What the Elastic view is asked, as it stands in the link.
    pub job: String,
    /// What could not be used, a sentence each.
    pub problems: Vec<String>,
}

/// Files that a link names or holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Files {
    /// To be fetched.
    pub plan: Option<String>,
    pub trace: Option<String>,
    /// Of the ranks of a run.
    pub metrics: Vec<String>,
    /// Plans that it holds, packed: what is shown, and what it is compared with.
    pub packed: Option<String>,
    pub packed_a: Option<String>,
}

/// What the Recompute view is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Asked {
    /// A stage of the plan.
    pub stage: u32,
    /// The share of its memory to keep.
    pub keep: f64,
}

impl Default for Asked {
    fn default() -> Self {
        Self { stage: 0, keep: 0.5 }
    }
}

/// Ranks of a tensor group beyond this are refused: more than any machine's nodes have devices.
pub const TENSOR_MAX: u32 = 64;

/// Replicas beyond this are refused.
pub const REPLICAS_MAX: u32 = 4096;

/// Stages beyond this are refused: every lane wants its pixels.
pub const STAGES_MAX: u32 = 128;
/// Micro-batches beyond this are refused: the picture is one action per pixel long before.
pub const MICRO_BATCHES_MAX: u32 = 8192;
/// A mini-batch beyond this is refused.
pub const MINI_BATCH_MAX: u64 = 1 << 24;

/// The fragment without `#`; empty for the first picture.
pub fn write(inputs: &Inputs, near: Option<&Ground>, screen: Screen, asked: Asked) -> String {
    let first = presets::first();
    let mut words = vec![];
    let mut put = |key: &str, value: String, default: String| {
        if value != default {
            words.push(format!("{key}={value}"));
        }
    };
    put("model", inputs.model.key(), first.model.key());
    put("cluster", inputs.cluster.key(), first.cluster.key());
    put("batch", inputs.mini_batch.to_string(), first.mini_batch.to_string());
    put("mb", inputs.micro_batches.to_string(), first.micro_batches.to_string());
    let order = match &inputs.own {
        Some(_) => "file".to_owned(),
        None => inputs.schedule.to_string(),
    };
    put("s", order, first.schedule.to_string());
    // Who opens the link lacks typed times, so "equal" would mean other cuts.
    let typed = inputs.typed().is_some();
    let lanes = inputs.lanes();
    let named = inputs.own.is_none();
    let equal = || {
        let ground = near.map_or_else(|| Ground::of(inputs), |near| Ground::near(inputs, near));
        engine::lane_cuts(&ground, inputs.schedule, lanes) == inputs.cuts
    };
    if named && !typed && equal() {
        put("d", lanes.to_string(), first.lanes().to_string());
    } else {
        let list: Vec<String> = inputs.cuts.iter().map(u32::to_string).collect();
        put("cuts", list.join(","), String::new());
    }
    let precision = inputs.rest.training.precision.word();
    put("precision", precision.into(), Precision::default().word().into());
    put("replicas", inputs.rest.data_parallel.replicas.to_string(), "1".into());
    put("zero", inputs.rest.data_parallel.zero.to_string(), "0".into());
    put("experts", inputs.rest.data_parallel.expert_parallel.to_string(), "1".into());
    put("tensor", inputs.rest.tensor.to_string(), "1".into());
    put("sequence", u8::from(inputs.rest.sequence_parallel).to_string(), "0".into());
    let communication = &inputs.rest.communication;
    put("codec", communication.gradients.to_string(), "fp32".into());
    put("hosts", u8::from(communication.hierarchical).to_string(), "0".into());
    put("edges", communication.edges.across.to_string(), "fp32".into());
    put("view", screen.word().into(), Screen::default().word().into());
    if screen == Screen::Recompute {
        put("stage", asked.stage.to_string(), "0".into());
        put("keep", format!("{:.1}", asked.keep * 100.0), String::new());
    }
    if let Some(a) = &inputs.a {
        let text = write(a, near, Screen::default(), Asked::default());
        words.push(format!("a={}", escape(text.strip_prefix(VERSION).unwrap_or(&text))));
    }
    if words.is_empty() {
        return String::new();
    }
    format!("{VERSION}{}", words.join("&"))
}

/// What a link begins with.
const VERSION: &str = "v=1&";

/// Reads a fragment, with or without `#`: everything valid is used, the rest is listed.
/// `current` lends what links do not carry: a model or cluster that came with a plan.
pub fn read(fragment: &str, current: Option<&Inputs>) -> Link {
    let fragment = fragment.strip_prefix('#').unwrap_or(fragment);
    let mut link = Link {
        inputs: presets::first(),
        files: Files::default(),
        story: String::new(),
        embed: false,
        screen: Screen::default(),
        asked: Asked::default(),
        play: String::new(),
        job: String::new(),
        problems: vec![],
    };
    if let Some(current) = current {
        link.inputs.rest = current.rest.clone();
        link.inputs.recompute = current.recompute.clone();
        link.inputs.times = current.times.clone();
    }
    // What links carry is as they say.
    let rest = &mut link.inputs.rest;
    rest.training.precision = Precision::default();
    (rest.data_parallel.replicas, rest.data_parallel.zero) = (1, 0);
    rest.data_parallel.expert_parallel = 1;
    (rest.tensor, rest.sequence_parallel) = (1, false);
    rest.communication.gradients = Reduction::default();
    rest.communication.hierarchical = false;
    rest.communication.edges.across = CodecKind::Fp32;
    let mut lanes = link.inputs.lanes();
    let (mut cuts, mut a) = (None, None);
    for word in fragment.split('&').filter(|w| !w.is_empty()) {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let raw = value;
        let value = unescape(value);
        let taken = match key {
            "d" => number(&value, 1, STAGES_MAX.into()).map(|n| lanes = n as u32),
            "cuts" => list(&value).map(|nodes| cuts = Some(nodes)),
            "a" => {
                a = Some(value.clone());
                Ok(())
            }
            "plan" => local(&value).map(|path| link.files.plan = Some(path)),
            "p" => packed(&value).map(|text| link.files.packed = Some(text)),
            "pa" => packed(&value).map(|text| link.files.packed_a = Some(text)),
            "story" => keep(&value, &mut link.story),
            "embed" => number(&value, 0, 1).map(|on| link.embed = on == 1),
            "view" => Screen::of_word(&value).map(|screen| link.screen = screen),
            "stage" => {
                number(&value, 0, u64::from(STAGES_MAX) - 1).map(|n| link.asked.stage = n as u32)
            }
            "keep" => percent(&value).map(|share| link.asked.keep = share),
            "play" => keep(&value, &mut link.play),
            // Scripts hold what would end a word: it is read word by word.
            "job" => keep(raw, &mut link.job),
            "trace" => local(&value).map(|path| link.files.trace = Some(path)),
            "metrics" => local(&value).map(|path| link.files.metrics.push(path)),
            _ => choose(&mut link.inputs, key, &value, current),
        };
        if let Err(why) = taken {
            link.problems.push(format!("`{word}`: {}", said(&why)));
        }
    }
    if let Some(a) = a {
        compared(&mut link, &a, current);
    }
    place_cuts(&mut link, lanes, cuts);
    link
}

/// Cuts the model for so many lanes, or as the link says.
fn place_cuts(link: &mut Link, lanes: u32, cuts: Option<Vec<u32>>) {
    let graph = link.inputs.model.graph();
    let most = engine::most_lanes(&graph, link.inputs.schedule);
    if lanes > most {
        link.problems.push(tr!(
            "`d={lanes}`: this model has layers for at most {most} lanes",
            lanes,
            most
        ));
    }
    engine::split(&mut link.inputs, lanes);
    if let Some(cuts) = cuts {
        let nodes = link.inputs.model.graph().nodes().len() as u32;
        let rising = cuts.windows(2).all(|w| w[0] < w[1]);
        let inside = cuts.iter().all(|c| (1..nodes).contains(c));
        if rising && inside && cuts.len() < STAGES_MAX as usize {
            link.inputs.cuts = cuts;
        } else {
            let why = tr!("`cuts`: cuts must ascend between 1 and {last}", last = nodes - 1);
            link.problems.push(why);
        }
    }
}

/// Takes what the plan is compared with, and only its inputs.
fn compared(link: &mut Link, a: &str, current: Option<&Inputs>) {
    // A link inside of the link inside of the link would go on for ever.
    let words: Vec<&str> = a.split('&').filter(|word| !word.starts_with("a=")).collect();
    let lent = current.map(|now| match &now.a {
        Some(a) => (**a).clone(),
        None => Inputs { recompute: None, ..now.alone() },
    });
    let read = read(&words.join("&"), lent.as_ref());
    link.problems.extend(read.problems.into_iter().map(|why| tr!("in A, {why}", why)));
    link.inputs.a = Some(Box::new(read.inputs));
}

/// Takes one word of the inputs proper.
fn choose(
    inputs: &mut Inputs,
    key: &str,
    value: &str,
    current: Option<&Inputs>,
) -> Result<(), String> {
    match key {
        "v" if value == "1" => {}
        "v" => return Err(t("this page reads links of version 1").into()),
        "model" if value == "file" => match current.map(|c| &c.model) {
            Some(own @ ModelChoice::File(_)) => inputs.model = own.clone(),
            _ => return Err(t("that model came from a plan, which a link does not carry").into()),
        },
        "cluster" if value == "file" => match current.map(|c| &c.cluster) {
            Some(own @ ClusterChoice::File(_)) => inputs.cluster = own.clone(),
            _ => return Err(t("that cluster came from a plan, which a link does not carry").into()),
        },
        "model" => {
            inputs.model = ModelChoice::Preset(value.parse().map_err(|e| format!("{e}"))?);
        }
        "cluster" => {
            let known = ClusterChoice::by_name(value);
            inputs.cluster = known.ok_or_else(|| t("no such cluster"))?;
        }
        "batch" => inputs.mini_batch = number(value, 1, MINI_BATCH_MAX)?,
        "mb" => inputs.micro_batches = number(value, 1, MICRO_BATCHES_MAX.into())? as u32,
        "replicas" => {
            let most = REPLICAS_MAX.into();
            inputs.rest.data_parallel.replicas = number(value, 1, most)? as u32;
        }
        "zero" => inputs.rest.data_parallel.zero = number(value, 0, 2)? as u8,
        "experts" => {
            let most = REPLICAS_MAX.into();
            inputs.rest.data_parallel.expert_parallel = number(value, 1, most)? as u32;
        }
        "tensor" => inputs.rest.tensor = number(value, 1, TENSOR_MAX.into())? as u32,
        "sequence" => inputs.rest.sequence_parallel = number(value, 0, 1)? == 1,
        "precision" => {
            let known = Precision::of_word(value);
            inputs.rest.training.precision = known.ok_or_else(|| t("no such precision"))?;
        }
        "codec" => inputs.rest.communication.gradients = codec(value)?,
        "hosts" => inputs.rest.communication.hierarchical = number(value, 0, 1)? == 1,
        "edges" => inputs.rest.communication.edges.across = edge(value)?,
        "s" if value == "file" => match current.and_then(|c| c.own.as_ref()) {
            Some(own) => inputs.own = Some(own.clone()),
            _ => return Err(t("that order came from a file, which a link does not carry").into()),
        },
        "s" => {
            let kind: ScheduleKind = value.parse().map_err(|e| format!("{e}"))?;
            inputs.schedule = kind;
        }
        _ => return Err(t("unknown").into()),
    }
    Ok(())
}

fn number(text: &str, least: u64, most: u64) -> Result<u64, String> {
    let value = text.parse::<u64>().ok().filter(|n| (least..=most).contains(n));
    value.ok_or_else(|| tr!("must be a whole number from {least} to {most}", least, most))
}

fn codec(text: &str) -> Result<Reduction, String> {
    let way: Reduction = text.parse().map_err(|e| format!("{e}"))?;
    way.fault().map_or(Ok(way), |what| Err(what.into()))
}

fn edge(text: &str) -> Result<CodecKind, String> {
    let codec: CodecKind = text.parse().map_err(|e| format!("{e}"))?;
    let keeps = t("it keeps state between messages; choose bf16 or fp8-e4m3");
    if codec.is_stateless() && codec.has_sound_settings() { Ok(codec) } else { Err(keeps.into()) }
}

fn percent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|n| (0.0..=100.0).contains(n));
    value.map(|n| n / 100.0).ok_or_else(|| t("must be a percentage from 0 to 100").into())
}

/// What others read.
fn keep(text: &str, place: &mut String) -> Result<(), String> {
    text.clone_into(place);
    Ok(())
}

fn list(text: &str) -> Result<Vec<u32>, String> {
    if text.is_empty() {
        return Ok(vec![]);
    }
    let nodes: Result<Vec<u32>, _> = text.split(',').map(str::parse).collect();
    nodes.map_err(|_| t("must be numbers with commas between").into())
}

/// Only files beside the page: a link must not make the page fetch from anywhere else.
fn local(path: &str) -> Result<String, String> {
    let outside = path.is_empty()
        || path.contains(':')
        || path.contains('\\')
        || path.starts_with('/')
        || path.split('/').any(|part| part == "..");
    if outside { Err(t("must be a file beside this page").into()) } else { Ok(path.into()) }
}

/// What can be a packed plan.
fn packed(text: &str) -> Result<String, String> {
    let known = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    match !text.is_empty() && text.chars().all(known) {
        true => Ok(text.into()),
        false => Err(t("the plan in it is damaged; copy the whole link").into()),
    }
}

/// Whether a link gives who opens it just these inputs.
pub fn carries(inputs: &Inputs) -> bool {
    let text = write(inputs, None, Screen::default(), Asked::default());
    read(&text, None).inputs == *inputs
}

/// The words of a link that say what is shown, without its inputs.
pub fn place(link: &str) -> String {
    let shown = ["view", "stage", "keep", "play", "job"];
    let is_place = |word: &&str| shown.contains(&word.split('=').next().unwrap_or_default());
    link.split('&').filter(is_place).map(|word| format!("&{word}")).collect()
}

/// What would end a word or mean something else in it.
fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('&', "%26").replace('=', "%3D").replace('#', "%23")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planner::presets::EXAMPLES;

    fn plain(inputs: &Inputs) -> String {
        write(inputs, None, Screen::Plan, Asked::default())
    }

    #[test]
    fn links_round_trip() {
        for example in &EXAMPLES {
            let inputs = example.inputs();
            let link = read(&plain(&inputs), None);
            assert_eq!(link.inputs, inputs, "{}", plain(&inputs));
            assert!(link.problems.is_empty());
        }
        let mut moved = presets::first();
        moved.cuts[1] += 1;
        assert_eq!(read(&format!("#{}", plain(&moved)), None).inputs, moved);
        assert_eq!(plain(&presets::first()), "");
        let asked = Asked { stage: 2, keep: 0.305 };
        let text = write(&presets::first(), None, Screen::Recompute, asked);
        assert_eq!(text, "v=1&view=recompute&stage=2&keep=30.5");
        assert_eq!((read(&text, None).screen, read(&text, None).asked), (Screen::Recompute, asked));
        let mut encoded = presets::first();
        encoded.rest.data_parallel.replicas = 4;
        encoded.rest.communication.gradients = "one-bit+feedback".parse().unwrap();
        encoded.rest.communication.hierarchical = true;
        encoded.rest.communication.edges.across = CodecKind::Bf16;
        let text = write(&encoded, None, Screen::Communication, Asked::default());
        let link = read(&text, None);
        assert_eq!((link.inputs, link.screen), (encoded.clone(), Screen::Communication), "{text}");
        // A goes with it, and only its inputs.
        let mut pinned = moved.clone();
        pinned.a = Some(Box::new(encoded.clone()));
        let text = plain(&pinned);
        assert!(text.contains("&a=replicas%3D4%26codec%3Done-bit"), "{text}");
        assert_eq!(read(&text, None).inputs, pinned);
        pinned.a = Some(Box::new(presets::first()));
        assert!(plain(&pinned).ends_with("&a="), "{}", plain(&pinned));
        assert_eq!(read(&plain(&pinned), None).inputs, pinned);
        let inside = read("a=mb%3D16%26a%3Dmb%253D4%26plan%3Dx.json%26mb%3D0", None);
        let a = inside.inputs.a.unwrap();
        assert_eq!((a.micro_batches, a.a, inside.files.plan), (16, None, None));
        assert_eq!(inside.problems.len(), 1, "{:?}", inside.problems);
        // Back: what a link does not say is not so.
        assert_eq!(read("", Some(&encoded)).inputs, presets::first());
        for zero in 1..=2 {
            let divided = read(&format!("replicas=4&zero={zero}"), None).inputs;
            assert_eq!(plain(&divided), format!("v=1&replicas=4&zero={zero}"));
        }
        let text = "v=1&replicas=4&experts=2";
        assert_eq!(plain(&read(text, None).inputs), text);
        for bad in ["codec=fp7", "codec=bf16+operator", "edges=power-sgd:2", "replicas=0", "zero=3"]
        {
            assert_eq!(read(bad, None).problems.len(), 1, "{bad}");
        }
        assert_eq!(read("v=1&view=recompute&keep=200", None).problems.len(), 1);
    }

    #[test]
    fn what_is_valid_is_used_and_the_rest_is_listed() {
        let link = read("#v=1&model=nope&mb=16&batch=0&cuts=9,3&colour=red&s=gpipe", None);
        assert_eq!(link.inputs.micro_batches, 16);
        assert_eq!(link.inputs.schedule.to_string(), "gpipe");
        assert_eq!(link.inputs.model, presets::first().model);
        assert_eq!(link.problems.len(), 4, "{:?}", link.problems);
    }

    #[test]
    fn only_files_beside_the_page_are_fetched() {
        assert_eq!(read("plan=demo/plan.json", None).files.plan.as_deref(), Some("demo/plan.json"));
        for bad in ["https://x.org/p.json", "//x.org/p", "/etc/passwd", "../p.json", "a/../../p"] {
            let link = read(&format!("plan={bad}"), None);
            assert_eq!((link.files.plan, link.problems.len()), (None, 1), "{bad}");
        }
    }

    #[test]
    fn nothing_a_link_can_say_panics() {
        for text in ["#", "#&&&", "#=%", "#%zz=%zz", "#cuts=,", "#cuts=0", "#d=999999", "#mb=-1"] {
            read(text, None);
        }
        assert_eq!(read("#model=fc32%3A512", None).inputs.model.key(), "fc32:512");
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod old;
