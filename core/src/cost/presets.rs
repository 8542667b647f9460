//! Machines by name. `docs/clusters.md` says where their figures come from.

use super::{Cluster, ClusterError};

/// Names, each with its file beside.
macro_rules! presets {
    ($($name:literal)*) => {
        /// The presets, in the order in which they are offered.
        pub const CLUSTERS: [&str; [$($name),*].len()] = [$($name),*];

        fn text(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("clusters/", $name, ".json"))),)*
                _ => None,
            }
        }
    };
}

presets! {
    "reedbush-l" "laptop" "rtx4090" "a100" "h100" "8x-rtx4090" "8x-l4" "8x-a10" "4x-gh200" "dgx-1-p100" "dgx-2"
    "dgx-a100-40gb" "dgx-a100" "dgx-h100" "hgx-h200" "hgx-b200"
}

impl Cluster {
    /// A preset.
    ///
    /// # Errors
    /// When no preset has that name.
    pub fn preset(name: &str) -> Result<Self, ClusterError> {
        let text = text(name).ok_or_else(|| ClusterError::Unknown(name.into()))?;
        Ok(serde_json::from_str(text).expect("presets are tested"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_are_sound_and_round_trip() {
        for name in CLUSTERS {
            let cluster = Cluster::preset(name).unwrap();
            cluster.check().unwrap();
            assert_eq!(cluster.name, name);
            let text = serde_json::to_string(&cluster).unwrap();
            assert_eq!(serde_json::from_str::<Cluster>(&text).unwrap(), cluster);
        }
        assert!(Cluster::preset("cray-1").is_err());
    }

    #[test]
    fn one_device_is_the_one_of_the_large_machine() {
        for (one, many) in [("a100", "dgx-a100"), ("h100", "dgx-h100"), ("rtx4090", "8x-rtx4090")] {
            let [one, many] = [one, many].map(|name| Cluster::preset(name).unwrap());
            assert_eq!(one.devices(), 1);
            assert_eq!(one.device, many.device);
        }
    }
}
