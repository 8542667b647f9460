//! Ten states that each tell something, as links with two sentences; tests hold the sentences to the plans.

use crate::base::texts::n;

/// A state worth a look.
#[derive(Debug)]
pub struct Story {
    /// Its name in links.
    pub word: &'static str,
    pub title: &'static str,
    pub text: &'static str,
    /// Where it is seen; a link without its version.
    link: &'static str,
}

impl Story {
    /// The story of that name.
    pub fn named(word: &str) -> Option<&'static Story> {
        ALL.iter().find(|story| story.word == word)
    }

    /// The link, which names the story.
    pub fn link(&self) -> String {
        format!("v=1&{}&story={}", self.link, self.word)
    }
}

/// In the order in which they are told.
pub const ALL: [Story; 10] = [
    Story {
        word: "1f1b",
        title: n("Why 1F1B beats GPipe"),
        text: n(
            "1F1B takes as long as GPipe (A), but a lane holds few micro-batches instead of all 16: less than half \
             the memory. Choose GPipe in the strip of schedules and watch the memory grow.",
        ),
        link: "model=resnet50&cluster=dgx-a100&d=4&mb=16&batch=1024&a=model%3Dresnet50%26cluster%3Ddgx-a100%26d%3D4%26mb%3D16%26batch%3D1024%26s%3Dgpipe",
    },
    Story {
        word: "data-parallel",
        title: n("When pipelining loses to data parallelism"),
        text: n(
            "VGG16's layers are too unequal for a pipeline of 4 lanes (A): 4 replicas of the whole network take a third \
             less time and less memory. Summing their gradients hides behind the backward pass.",
        ),
        link: "d=1&replicas=4&a=",
    },
    Story {
        word: "dualpipe",
        title: n("The price of DualPipe"),
        text: n(
            "DualPipe runs two directions at once and overlaps forward with backward: a shorter step than 1F1B (A). Each \
             lane holds the weights of two stages, so memory is the price.",
        ),
        link: "model=gpt2&d=4&mb=8&batch=64&s=dualpipe&a=model%3Dgpt2%26d%3D4%26mb%3D8%26batch%3D64",
    },
    Story {
        word: "split",
        title: n("Equal layers are not equal time"),
        text: n(
            "A has as many layers in each stage, this plan about as much time: the step is more than a tenth shorter. Drag a \
             cut in the split on the left and watch the slowest stage.",
        ),
        link: "model=vgg16&d=4&mb=8",
    },
    Story {
        word: "measured",
        title: n("A published experiment"),
        text: n(
            "32 dense layers on 8 P100, as Takisawa et al. measured them in 2022. Open Speed-up below: crosses are their \
             measurements, curves are simulated.",
        ),
        link: "model=fc32%3A5000&cluster=reedbush-l&d=8&mb=20&batch=1200&s=gpipe",
    },
    Story {
        word: "interleaved",
        title: n("Shorter ramps for more messages"),
        text: n(
            "Two stages on each lane shorten filling and draining, so the step is shorter than 1F1B's (A). Every micro-batch \
             crosses the lanes twice: traffic doubles and more.",
        ),
        link: "model=fc32%3A5000&d=4&mb=8&batch=8192&s=interleaved%3A2&a=model%3Dfc32%253A5000%26d%3D4%26mb%3D8%26batch%3D8192",
    },
    Story {
        word: "zero-bubble",
        title: n("Weight gradients fill the gaps"),
        text: n(
            "ZB-H1 splits the backward pass: nobody waits for weight gradients, so they fill gaps of 1F1B (A). The bubble \
             shrinks; what they need is held longer.",
        ),
        link: "model=gpt2&d=4&mb=8&batch=64&s=zb-h1&a=model%3Dgpt2%26d%3D4%26mb%3D8%26batch%3D64",
    },
    Story {
        word: "recompute",
        title: n("Recompute where memory is short"),
        text: n(
            "The first stage of this plan keeps activations of four micro-batches. Drag the budget to the left: each point of \
             the curve is a sequence that computes some values again, and says what that costs.",
        ),
        link: "model=gpt2&cluster=8x-l4&d=4&mb=8&batch=32&view=recompute&stage=0&keep=50",
    },
    Story {
        word: "one-bit",
        title: n("One bit needs feedback"),
        text: n(
            "Four ranks train the same small network, with gradients of 32 bits, of one bit, and of one bit with error \
             feedback. Press Train: what one bit loses, feedback carries over to the next step.",
        ),
        link: "view=playground&play=runs=fp32,one-bit:mean,one-bit+feedback",
    },
    Story {
        word: "node-lost",
        title: n("A node is lost"),
        text: n(
            "Spot instances come and go under two policies; a lost node costs the time to notice it and to restart. Drag a \
             failure on the time axis, or add one, and compare what both policies get done.",
        ),
        link: "view=elastic&job=ev=spot;work=8h;b=ex:patient",
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::screen::Screen;
    use crate::planner::engine::{Figures, Ground, baseline, solve};
    use crate::planner::link::{Link, read};

    fn told(word: &str) -> Link {
        let link = read(&Story::named(word).unwrap().link(), None);
        assert_eq!(link.problems, Vec::<String>::new(), "{word}");
        assert_eq!(link.story, word);
        link
    }

    /// The figures of a story's plan, and of what it is compared with.
    fn figures(word: &str) -> (Figures, Figures) {
        let inputs = told(word).inputs;
        let a = baseline(&inputs, &inputs.model.graph()).unwrap();
        let [b, a] = [inputs, a].map(|i| solve(&i.alone(), &Ground::of(&i)).unwrap());
        assert!(b.figures.peak <= b.capacity, "{word} fits");
        (b.figures, a.figures)
    }

    fn less(b: u64, a: u64) -> f64 {
        1.0 - b as f64 / a as f64
    }

    #[test]
    fn sentences_about_plans_hold() {
        let (b, a) = figures("1f1b");
        assert!(less(b.step.0, a.step.0).abs() < 0.03, "{} {}", b.step, a.step);
        assert!(less(b.peak.0, a.peak.0) > 0.5, "{} {}", b.peak, a.peak);
        let (b, a) = figures("data-parallel");
        assert!((0.30..0.37).contains(&less(b.step.0, a.step.0)) && b.peak < a.peak);
        let (b, a) = figures("dualpipe");
        assert!(b.step < a.step && b.peak > a.peak, "{b:?} {a:?}");
        let (b, a) = figures("split");
        assert!(less(b.step.0, a.step.0) > 0.1);
        let (b, a) = figures("interleaved");
        assert!(b.step < a.step && b.traffic.0 > 2 * a.traffic.0, "{b:?} {a:?}");
        let (b, a) = figures("zero-bubble");
        assert!(b.bubble < a.bubble && b.step < a.step && b.peak > a.peak, "{b:?} {a:?}");
        figures("measured");
        figures("recompute");
    }

    #[test]
    fn every_story_opens_where_it_is_told() {
        for story in &ALL {
            let link = told(story.word);
            let screen = match story.word {
                "recompute" => Screen::Recompute,
                "one-bit" => Screen::Playground,
                "node-lost" => Screen::Elastic,
                _ => Screen::Plan,
            };
            assert_eq!(link.screen, screen, "{}", story.word);
            assert!(story.text.trim_end().ends_with('.'), "{}", story.text);
        }
    }
}
