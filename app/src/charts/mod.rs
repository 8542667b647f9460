//! Drawing. The plain modules compute pixels, positions and markup and are tested natively; only
//! those of the feature `page` talk to the browser.

#[cfg(feature = "page")]
pub mod bars;
pub mod buttons;
#[cfg(feature = "page")]
pub mod canvas;
pub mod chain;
pub mod chart;
pub mod communication;
pub mod differences;
pub mod drift;
pub mod elastic;
pub mod fill;
pub mod forms;
#[cfg(feature = "page")]
pub mod frame;
pub mod gaps;
pub mod hit;
pub mod layer;
pub mod layers;
pub mod layout;
pub mod metrics;
#[cfg(feature = "page")]
pub mod overlay;
pub mod palette;
pub mod pareto;
pub mod playground;
pub mod raster;
pub mod recompute;
pub mod speedup;
#[cfg(feature = "page")]
pub mod strips;
#[cfg(feature = "page")]
pub mod style;
pub mod svg;
pub mod ticks;
