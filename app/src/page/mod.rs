//! The page around the screens: header, help, palette, files, the address, and the machine that serves it.

#[cfg(feature = "page")]
mod address;
#[cfg(feature = "page")]
pub mod app;
#[cfg(feature = "page")]
mod commands;
mod entries;
mod exports;
#[cfg(feature = "page")]
mod files;
#[cfg(feature = "page")]
mod gallery;
#[cfg(feature = "page")]
mod header;
#[cfg(feature = "page")]
mod help;
mod here;
#[cfg(feature = "page")]
mod keeping;
mod kinds;
#[cfg(feature = "page")]
mod making;
#[cfg(feature = "page")]
mod menu;
#[cfg(feature = "page")]
mod opening;
#[cfg(feature = "page")]
mod packing;
#[cfg(feature = "page")]
mod palette;
#[cfg(feature = "page")]
mod pictures;
#[cfg(feature = "page")]
mod recent;
#[cfg(feature = "page")]
mod requests;
mod saved;
#[cfg(feature = "page")]
mod state;
#[cfg(feature = "page")]
mod theme;
#[cfg(feature = "page")]
mod tour;
