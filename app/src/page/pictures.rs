//! Any chart of the page as a file: SVG with its style written out, or PNG.

use crate::base::download::{download, follow};
use crate::base::texts::tr;
use leptos::prelude::*;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Element, HtmlCanvasElement, HtmlImageElement};

/// A chart that is on the page.
#[derive(Clone)]
pub struct Chart {
    element: Element,
    /// What it shows, in a few words.
    pub name: String,
    /// Without its ending.
    file: String,
}

/// What the style sheet says of a drawing, as attributes of the same names: what reads an SVG file has
/// no style sheet.
const STYLE: [&str; 17] = [
    "fill",
    "fill-opacity",
    "stroke",
    "stroke-width",
    "stroke-opacity",
    "stroke-dasharray",
    "stroke-linecap",
    "stroke-linejoin",
    "opacity",
    "font-family",
    "font-size",
    "font-weight",
    "text-anchor",
    "dominant-baseline",
    "paint-order",
    "visibility",
    "display",
];

/// Pixels of a PNG for each of the page's.
const SHARP: f64 = 2.0;

/// Longest name.
const LETTERS: usize = 60;

/// The charts of the screen that is open, but for the timeline, which has drawings of its own.
pub fn charts() -> Vec<Chart> {
    let Ok(found) = document().query_selector_all("svg[role=img], canvas[role=img]") else {
        return vec![];
    };
    let mut charts: Vec<Chart> = vec![];
    for element in (0..found.length()).filter_map(|at| found.get(at)) {
        let Ok(element) = element.dyn_into::<Element>() else { continue };
        let label = element.get_attribute("aria-label").unwrap_or_default();
        let name = label.split([':', '.', ',', '(']).next().unwrap_or_default().trim();
        let name = match card(&element) {
            Some(card) => format!("{card}, {name}"),
            None => name.to_owned(),
        };
        let name: String = name.chars().take(LETTERS).collect();
        if element.get_bounding_client_rect().width() < 1.0 || name.is_empty() {
            continue;
        }
        let kept = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let words: String = name.chars().map(kept).collect();
        let words: Vec<&str> = words.split('-').filter(|word| !word.is_empty()).collect();
        let number = charts.iter().filter(|other| other.name == name).count() + 1;
        let mut file = if words.is_empty() { "chart".to_owned() } else { words.join("-") };
        if number > 1 {
            file = format!("{file}-{number}");
        }
        charts.push(Chart { element, name, file });
    }
    charts
}

/// The title of the card that a chart is on: of several alike.
fn card(chart: &Element) -> Option<String> {
    let card = chart.closest("article").ok()??;
    let title = || card.query_selector("h3").ok()??.text_content();
    card.get_attribute("aria-label").or_else(title).filter(|title| !title.is_empty())
}

impl Chart {
    /// Whether it is a drawing, and not an image of pixels.
    pub fn is_drawing(&self) -> bool {
        self.element.tag_name().eq_ignore_ascii_case("svg")
    }

    /// The name of its file.
    pub fn file(&self, ending: &str) -> String {
        format!("{}.{ending}", self.file)
    }

    /// Saves it as SVG or PNG, by the ending. Returns what to tell, and whether it went wrong.
    pub async fn save(&self, ending: &str) -> (String, bool) {
        let name = self.file(ending);
        let saved = match (ending, self.element.dyn_ref::<HtmlCanvasElement>()) {
            ("svg", _) => self.drawing().and_then(|text| download(&name, &text)),
            (_, Some(canvas)) => canvas.to_data_url().and_then(|url| follow(&url, &name)),
            (_, None) => self.pixels(&name).await,
        };
        match saved {
            Ok(()) => (tr!("{name} saved.", name), false),
            Err(_) => (tr!("The browser refused to save {name}.", name), true),
        }
    }

    /// The drawing as a file that needs nothing of the page.
    fn drawing(&self) -> Result<String, JsValue> {
        let copy: Element = self.element.clone_node_with_deep(true)?.unchecked_into();
        let parts = |of: &Element| of.query_selector_all("*");
        let (theirs, ours) = (parts(&self.element)?, parts(&copy)?);
        style(&self.element, &copy)?;
        for at in 0..theirs.length() {
            if let (Some(from), Some(to)) = (theirs.get(at), ours.get(at)) {
                style(from.unchecked_ref(), to.unchecked_ref())?;
            }
        }
        let area = self.element.get_bounding_client_rect();
        let (width, height) = (area.width().round(), area.height().round());
        copy.set_attribute("xmlns", "http://www.w3.org/2000/svg")?;
        if !copy.has_attribute("viewBox") {
            copy.set_attribute("viewBox", &format!("0 0 {width} {height}"))?;
        }
        copy.set_attribute("width", &width.to_string())?;
        copy.set_attribute("height", &height.to_string())?;
        let ground = document().create_element_ns(Some("http://www.w3.org/2000/svg"), "rect")?;
        for (name, value) in [("width", "100%"), ("height", "100%"), ("fill", &ground_colour()?)] {
            ground.set_attribute(name, value)?;
        }
        copy.insert_before(&ground, copy.first_child().as_ref())?;
        web_sys::XmlSerializer::new()?.serialize_to_string(&copy)
    }

    async fn pixels(&self, name: &str) -> Result<(), JsValue> {
        let parts = js_sys::Array::of1(&JsValue::from_str(&self.drawing()?));
        let options = web_sys::BlobPropertyBag::new();
        options.set_type("image/svg+xml");
        let blob = web_sys::Blob::new_with_str_sequence_and_options(&parts, &options)?;
        let url = web_sys::Url::create_object_url_with_blob(&blob)?;
        let image = HtmlImageElement::new()?;
        image.set_src(&url);
        let read = JsFuture::from(image.decode()).await;
        web_sys::Url::revoke_object_url(&url)?;
        read?;
        let canvas: HtmlCanvasElement = document().create_element("canvas")?.unchecked_into();
        let area = self.element.get_bounding_client_rect();
        let (width, height) = (area.width() * SHARP, area.height() * SHARP);
        canvas.set_width(width as u32);
        canvas.set_height(height as u32);
        let context = canvas.get_context("2d")?.ok_or(JsValue::NULL)?;
        let context: web_sys::CanvasRenderingContext2d = context.unchecked_into();
        context
            .draw_image_with_html_image_element_and_dw_and_dh(&image, 0.0, 0.0, width, height)?;
        follow(&canvas.to_data_url()?, name)
    }
}

/// Writes the style that an element of the page has into its copy.
fn style(from: &Element, to: &Element) -> Result<(), JsValue> {
    let Some(seen) = window().get_computed_style(from)? else { return Ok(()) };
    for name in STYLE {
        let value = seen.get_property_value(name)?;
        if !value.is_empty() {
            to.set_attribute(name, &value)?;
        }
    }
    to.remove_attribute("class")
}

/// What is behind the charts.
fn ground_colour() -> Result<String, JsValue> {
    let body = document().body().ok_or(JsValue::NULL)?;
    let seen = window().get_computed_style(&body)?.ok_or(JsValue::NULL)?;
    seen.get_property_value("background-color")
}
