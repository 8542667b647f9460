//! The page around the screens: header, help, palette, files, the address, and the machine that serves it.

#[cfg(feature = "page")]
pub mod address;
#[cfg(feature = "page")]
pub mod app;
pub mod entries;
pub mod exports;
#[cfg(feature = "page")]
pub mod files;
#[cfg(feature = "page")]
pub mod header;
#[cfg(feature = "page")]
pub mod help;
pub mod here;
pub mod kinds;
#[cfg(feature = "page")]
pub mod menu;
#[cfg(feature = "page")]
pub mod opening;
#[cfg(feature = "page")]
pub mod palette;
#[cfg(feature = "page")]
pub mod pictures;
#[cfg(feature = "page")]
pub mod theme;
