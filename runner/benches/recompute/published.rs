//! Published results of other methods.

/// Points of other methods on one graph: memory and time as percentages of no recomputation.
pub struct Others {
    pub graph: &'static str,
    /// Chen et al. 2016 (best number of segments), PyTorch 2.8's partitioner with an activation
    /// memory budget, and a search in the manner of FastSA (Imanishi et al. 2023), all on the same
    /// graph and all checked.
    pub points: &'static [(f64, f64)],
}

pub const OTHERS: [Others; 12] = [
    Others {
        graph: "vgg16",
        points: &[(69.1, 117.1), (56.1, 108.4), (84.2, 118.3), (51.8, 109.7)],
    },
    Others {
        graph: "resnet50",
        points: &[
            (32.1, 122.8),
            (27.1, 127.9),
            (43.4, 126.8),
            (68.1, 131.6),
            (50.0, 114.6),
            (25.0, 123.6),
            (17.2, 129.3),
        ],
    },
    Others {
        graph: "densenet121",
        points: &[
            (16.8, 131.2),
            (20.5, 130.6),
            (19.7, 130.8),
            (50.0, 117.6),
            (25.0, 126.7),
            (13.9, 131.0),
        ],
    },
    Others {
        graph: "unet",
        points: &[
            (46.2, 116.2),
            (41.2, 116.7),
            (50.1, 112.6),
            (56.6, 115.8),
            (50.0, 112.1),
            (34.6, 115.6),
        ],
    },
    Others {
        graph: "gpt2",
        points: &[
            (42.4, 125.2),
            (11.4, 136.8),
            (44.5, 114.8),
            (21.9, 133.5),
            (50.0, 115.3),
            (25.0, 126.4),
            (15.0, 133.4),
            (10.1, 186.8),
        ],
    },
    Others {
        graph: "bert_base",
        points: &[
            (25.3, 129.7),
            (13.1, 133.9),
            (50.5, 112.7),
            (64.5, 131.1),
            (50.0, 114.3),
            (25.0, 123.7),
            (16.1, 133.0),
            (10.0, 197.1),
            (8.1, 291.8),
        ],
    },
    Others {
        graph: "gpt_neo_125m",
        points: &[
            (63.2, 121.2),
            (15.7, 137.2),
            (48.6, 120.5),
            (27.7, 132.7),
            (49.9, 121.6),
            (25.0, 129.5),
            (15.0, 166.1),
            (13.9, 228.6),
        ],
    },
    Others {
        graph: "llama_4layer",
        points: &[
            (75.4, 115.8),
            (35.4, 122.9),
            (52.7, 109.3),
            (86.6, 121.7),
            (50.0, 111.4),
            (31.5, 342.1),
        ],
    },
    Others {
        graph: "vit_small",
        points: &[
            (25.9, 121.6),
            (18.8, 121.4),
            (55.8, 113.3),
            (27.4, 120.6),
            (49.8, 111.0),
            (24.9, 117.2),
            (14.7, 135.1),
            (9.7, 182.6),
        ],
    },
    Others {
        graph: "mobilenet_v2",
        points: &[(22.6, 133.4), (27.2, 122.2), (26.4, 127.2), (76.6, 133.9)],
    },
    Others {
        graph: "efficientnet_b0",
        points: &[(29.2, 117.3), (26.7, 117.9), (33.1, 112.2), (32.4, 114.8), (78.6, 118.6)],
    },
    Others {
        graph: "googlenet",
        points: &[(47.8, 119.7), (27.4, 126.2), (32.6, 123.9), (38.4, 125.6)],
    },
];

/// A row of Table 1 of Imanishi et al. 2023: a graph of the Moccasin repository, a budget in per
/// cent, and the least cost increase of Checkmate, Moccasin and FastSA in per cent, with its seconds.
pub struct Row {
    pub graph: &'static str,
    pub budget: f64,
    pub increase: f64,
    pub seconds: f64,
    /// What it is of, and the memory where that missed the budget.
    pub whose: &'static str,
}

const fn row(
    graph: &'static str,
    budget: f64,
    increase: f64,
    seconds: f64,
    whose: &'static str,
) -> Row {
    Row { graph, budget, increase, seconds, whose }
}

pub const TABLE: [Row; 18] = [
    row("rl_100", 90.0, 0.0, 11.7, "FastSA"),
    row("rl_100", 80.0, 0.3, 11.5, "FastSA"),
    row("rl_100", 77.3, 2.2, 12.0, "FastSA, asked for 70"),
    row("rl_250", 90.0, 0.0, 15.1, "FastSA"),
    row("rl_250", 80.0, 0.0, 15.0, "FastSA"),
    row("rl_250", 70.0, 2.6, 14.5, "FastSA"),
    row("rl_500", 90.0, 0.03, 21.0, "FastSA"),
    row("rl_500", 80.0, 2.3, 20.9, "FastSA"),
    row("rl_500", 73.5, 4.8, 21.2, "FastSA, asked for 70"),
    row("rl_1000", 90.0, 0.4, 36.0, "FastSA"),
    row("rl_1000", 80.0, 2.5, 36.3, "FastSA"),
    row("rl_1000", 70.0, 7.4, 36.5, "FastSA"),
    row("cm_fcn8_vgg", 90.0, 0.0, 3.1, "Moccasin"),
    row("cm_fcn8_vgg", 80.0, 0.1, 3.1, "Moccasin"),
    row("cm_fcn8_vgg", 70.0, 3.0, 9.7, "FastSA"),
    row("cm_resnet50", 90.0, 0.1, 434.0, "Checkmate"),
    row("cm_resnet50", 80.0, 0.3, 69.0, "Moccasin"),
    row("cm_resnet50", 70.0, 0.8, 11.0, "FastSA"),
];
