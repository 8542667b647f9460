//! Size of an element, kept up to date.

use leptos::prelude::*;
use wasm_bindgen::JsCast;
use wasm_bindgen::prelude::Closure;

/// Width and height of `frame`, `first` until it is known.
pub fn watch(frame: NodeRef<leptos::html::Div>, first: (f64, f64)) -> ReadSignal<(f64, f64)> {
    let (size, set_size) = signal(first);
    Effect::new(move |_| {
        let Some(element) = frame.get() else { return };
        let measured = element.clone();
        observe(&element, move || {
            let size = (f64::from(measured.client_width()), f64::from(measured.client_height()));
            if size.0 > 0.0 {
                // The element may have gone since.
                set_size.try_set(size);
            }
        });
    });
    size
}

/// Calls `changed` whenever the element gets another size, as long as the effect around it lives.
pub fn observe(element: &web_sys::Element, changed: impl Fn() + 'static) {
    let changed = Closure::<dyn Fn()>::new(changed);
    let Ok(observer) = web_sys::ResizeObserver::new(changed.as_ref().unchecked_ref()) else {
        return;
    };
    observer.observe(element);
    let kept = StoredValue::new_local((observer, changed));
    on_cleanup(move || {
        kept.try_with_value(|(observer, _)| observer.disconnect());
    });
}
