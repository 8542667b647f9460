//! The measures as a program of the browser's.

use pipewright_meter as _;

fn main() {}
