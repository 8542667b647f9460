//! Foundations that every other room may use: texts, numbers as people read them, keys, code that comes later.

#[cfg(feature = "page")]
pub mod download;
#[cfg(feature = "page")]
pub mod focus;
pub mod format;
pub mod keys;
#[cfg(feature = "page")]
pub mod language;
#[cfg(feature = "page")]
pub mod later;
#[cfg(feature = "page")]
pub mod meter;
#[cfg(feature = "page")]
pub mod panic;
pub mod screen;
mod sentences;
#[cfg(feature = "page")]
pub mod settings;
pub mod shared;
pub mod stops;
pub mod terms;
pub mod texts;
#[cfg(feature = "page")]
pub mod upload;
pub mod words;
