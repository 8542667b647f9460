//! How large an element is, kept up to date.

use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::Closure;

/// Width and height of `frame`, `first` until it is known.
pub fn watch(frame: NodeRef<leptos::html::Div>, first: (f64, f64)) -> ReadSignal<(f64, f64)> {
    let (size, set_size) = signal(first);
    Effect::new(move |_| {
        let Some(element) = frame.get() else { return };
        let measured = element.clone();
        let changed = Closure::<dyn Fn()>::new(move || {
            let size = (f64::from(measured.client_width()), f64::from(measured.client_height()));
            if size.0 > 0.0 {
                // The element may have gone since.
                set_size.try_set(size);
            }
        });
        if let Ok(observer) = web_sys::ResizeObserver::new(changed.as_ref().unchecked_ref()) {
            observer.observe(&element);
            let observer = StoredValue::new_local(observer);
            on_cleanup(move || {
                observer.try_with_value(web_sys::ResizeObserver::disconnect);
            });
        }
        changed.forget();
    });
    size
}
