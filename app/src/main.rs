//! Starts the explorer; everything is in the library, so that it can be tested without a browser.

fn main() {
    pipewright_app::run();
}
