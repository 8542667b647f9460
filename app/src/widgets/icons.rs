//! Line icons, 16 px; always beside or instead of a name that is read aloud.

use leptos::prelude::*;

#[derive(Clone, Copy)]
pub enum Icon {
    Undo,
    Redo,
    Link,
    Theme,
    Help,
    Open,
    Chevron,
    Close,
    More,
    Run,
    Recent,
}

impl Icon {
    fn path(self) -> &'static str {
        match self {
            Icon::Undo => "M6 3 3 6l3 3M3 6h6a4 4 0 0 1 0 8H7",
            Icon::Redo => "m10 3 3 3-3 3M13 6H7a4 4 0 0 0 0 8h2",
            Icon::Link => {
                "M7 9a3 3 0 0 0 4.2 0l2-2A3 3 0 0 0 9 2.8l-1 1M9 7a3 3 0 0 0-4.2 0l-2 2A3 3 0 0 0 7 13.2l1-1"
            }
            Icon::Theme => "M8 2.500a5.500 5.500 0 1 0 0 11a5.500 5.500 0 1 0 0-11",
            Icon::Help => {
                "M8 2a6 6 0 1 0 0 12A6 6 0 1 0 8 2M6.300 6.300a1.700 1.700 0 1 1 2.500 1.500c-.5.3-.8.6-.8 1.200M8 11.300v.01"
            }
            Icon::Open => "M2.500 12.500v-9h4l1.500 2h5.500v7zM8 11V7.500M6.500 9 8 7.500 9.500 9",
            Icon::Chevron => "m6 4 4 4-4 4",
            Icon::Close => "m4 4 8 8M12 4l-8 8",
            Icon::More => "m4 6 4 4 4-4",
            Icon::Recent => {
                "M8 2.500a5.500 5.500 0 1 0 0 11a5.500 5.500 0 1 0 0-11M8 5v3.200l2.200 1.300"
            }
            Icon::Run => "M5 3.500v9l7-4.500z",
        }
    }
}

pub fn icon(icon: Icon) -> impl IntoView {
    view! {
        <svg class="ico" viewBox="0 0 16 16" aria-hidden="true">
            <path d=icon.path() />
            {matches!(icon, Icon::Theme).then(|| view! { <path d="M8 2.500a5.500 5.500 0 0 0 0 11z" fill="currentColor" /> })}
        </svg>
    }
}
