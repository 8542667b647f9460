//! Policies written as scripts, whose interpreter comes with the first of them.

use crate::base::later::Missing;
use leptos::wasm_split::wasm_split;
use pipewright_core::elastic::{ScalePolicy, Script};

/// A policy, whatever it is made of.
pub type Asked = Box<dyn ScalePolicy>;

/// The interpreter of scripts is large: it comes with the first script.
#[wasm_split(scripts, wasm_split_path = ::leptos::wasm_split, fallible)]
pub fn compile(text: String) -> Result<Result<Asked, String>, Missing> {
    let script = Script::compile("script", &text);
    Ok(script.map(|script| Box::new(script) as Asked).map_err(|why| why.what))
}
