//! Names and sizes of the presets.

use super::*;
use crate::graph::TargetSpec;

#[test]
fn parameter_counts_are_the_published_ones() {
    let count = |p: Preset| p.graph().unwrap().trainable_elements();
    // torchvision: 138,357,544 and 25,557,032.
    assert_eq!(count(Preset::Vgg16), 138_357_544);
    assert_eq!(count(Preset::Resnet50), 25_557_032);
    assert_eq!(count(Preset::Mlp4), 3 * (3072 * 3072 + 3072) + 3072 * 10 + 10);
    assert_eq!(count(Preset::Fc32 { width: 50 }), 31 * (50 * 50 + 50) + 50 * 10 + 10);
}

#[test]
fn forward_work_is_the_published_one() {
    // Multiply-adds: 15.47 G for VGG16, 4.09 G for ResNet-50 (torchvision's GFLOPS column).
    let giga = |p: Preset| p.graph().unwrap().forward_flops() as f64 / 2e9;
    assert!((giga(Preset::Vgg16) - 15.47).abs() < 0.05, "{}", giga(Preset::Vgg16));
    assert!((giga(Preset::Resnet50) - 4.09).abs() < 0.09, "{}", giga(Preset::Resnet50));
}

#[test]
fn parameters_have_torchvisions_names() {
    let names = |p: Preset| -> Vec<String> {
        p.graph().unwrap().params().iter().map(|p| p.name.clone()).collect()
    };
    let vgg = names(Preset::Vgg16);
    for name in ["features.0.weight", "features.28.bias", "classifier.0.weight"] {
        assert!(vgg.iter().any(|n| n == name), "{name}");
    }
    let resnet = names(Preset::Resnet50);
    for name in ["conv1.weight", "bn1.running_mean", "layer1.0.downsample.1.bias"] {
        assert!(resnet.iter().any(|n| n == name), "{name}");
    }
    assert_eq!(resnet.last().unwrap(), "fc.bias");
}

#[test]
fn layers_are_what_takisawa_counts() {
    let layers = |p: Preset| p.graph().unwrap().layers().len();
    assert_eq!(layers(Preset::Fc32 { width: 8 }), 32);
    assert_eq!(layers(Preset::Mlp4), 4);
    assert_eq!(layers(Preset::Resnet50), 1 + 16 + 1);
}

#[test]
fn names_round_trip() {
    for preset in PRESETS {
        assert_eq!(preset.to_string().parse(), Ok(preset));
    }
    for bad in [
        "fc32:0",
        "fc32:-1",
        "fc32:99999999999",
        "alexnet9",
        "vgg16:3",
        "",
        "unet:6",
        "unet:0,72",
        "unet:6,71",
        "amoebanet-d:17,208",
        "transformer:layers=2",
        "transformer:",
        "transformer:layers=1,layers=1",
    ] {
        assert!(bad.parse::<Preset>().is_err(), "{bad}");
    }
}

#[test]
fn images_of_another_size() {
    for (name, dense) in [("vgg16:32", 512), ("vgg16:224", 25_088)] {
        let preset: Preset = name.parse().unwrap();
        assert_eq!(preset.to_string(), name);
        let graph = preset.graph().unwrap();
        assert_eq!(graph.name(), name);
        let first = graph.params().iter().find(|p| p.name == "classifier.0.weight").unwrap();
        assert_eq!(first.shape, [4096, dense]);
    }
    let small = "resnet18:32".parse::<Preset>().unwrap().graph().unwrap();
    let usual = Preset::Resnet18.graph().unwrap();
    let count = |graph: &Graph| graph.params().iter().map(|p| p.elements()).sum::<u64>();
    assert_eq!(count(&small), count(&usual));
    for name in ["resnet18:32,classes=10", "alexnet:224,classes=16", "caffenet:227,classes=2"] {
        let preset: Preset = name.parse().unwrap();
        assert_eq!(preset.to_string(), name);
        let classes: u64 = name.split_once("classes=").unwrap().1.parse().unwrap();
        let graph = preset.graph().unwrap();
        assert_eq!(graph.name(), name);
        let target = graph.sample().unwrap().target;
        assert_eq!(target, TargetSpec::Classes { count: 1, classes });
        assert_eq!(preset.with_classes(7).unwrap().with_classes(classes), Some(preset));
    }
    assert_eq!("resnet50:classes=10".parse(), Ok(Preset::Resnet50.with_classes(10).unwrap()));
    assert_eq!(Preset::Resnet50.with_classes(1000), Some(Preset::Resnet50));
    assert_eq!(Preset::DigitsCnn.with_classes(11), None);
    for wrong in [
        "vgg16:33",
        "vgg16:32,classes=0",
        "vgg16:32,10",
        "googlenet:32,classes=10",
        "vgg16:0",
        "vgg16:",
        "alexnet:32",
        "fc32:512:32",
    ] {
        assert!(wrong.parse::<Preset>().is_err(), "{wrong}");
    }
}
