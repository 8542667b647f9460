//! Drawing. The plain modules compute pixels, positions and markup and are tested natively; only those of the
//! feature `page` talk to the browser.

#[cfg(feature = "page")]
pub mod bars;
pub mod buttons;
#[cfg(feature = "page")]
pub mod canvas;
pub mod chart;
pub mod fill;
#[cfg(feature = "page")]
pub mod frame;
mod gaps;
pub mod hit;
pub mod layers;
pub mod layout;
#[cfg(feature = "page")]
pub mod overlay;
pub mod palette;
pub mod raster;
#[cfg(feature = "page")]
pub mod strips;
#[cfg(feature = "page")]
mod style;
pub mod svg;
pub mod ticks;
pub mod unit;
