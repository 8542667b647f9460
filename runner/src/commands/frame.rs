//! Axes, and what is drawn between them.

use std::fmt::{Display, Write};

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 100.0;

/// A picture being drawn.
pub(super) struct Frame {
    text: String,
    x: (f64, f64),
    y: (f64, f64),
    /// Where the next explanation begins.
    legend: f64,
}

impl Frame {
    /// An empty picture with a title and, for both axes, a name, the least and the largest value.
    pub fn new(title: &str, x: (&str, f64, f64), y: (&str, f64, f64)) -> Self {
        let mut frame = Self {
            text: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
                 font-family=\"sans-serif\" font-size=\"13\">\n\
                 <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
            ),
            x: (x.1, if x.2 > x.1 { x.2 } else { x.1 + 1.0 }),
            // A little air above the highest value.
            y: (y.1, if y.2 > y.1 { y.1 + (y.2 - y.1) * 1.04 } else { y.1 + 1.0 }),
            legend: LEFT,
        };
        frame.write(format_args!(
            "<text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>",
            escaped(title)
        ));
        frame.ticks();
        let (middle, below) = (LEFT + (WIDTH - LEFT - RIGHT) / 2.0, HEIGHT - BOTTOM + 40.0);
        let name = escaped(x.0);
        frame.write(format_args!(
            "<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{name}</text>"
        ));
        let (beside, middle) = (20.0, TOP + (HEIGHT - TOP - BOTTOM) / 2.0);
        let name = escaped(y.0);
        frame.write(format_args!(
            "<text transform=\"translate({beside} {middle}) rotate(-90)\" \
             text-anchor=\"middle\">{name}</text>"
        ));
        frame
    }

    /// A line through points.
    pub fn line(&mut self, points: &[(f64, f64)], color: &str) {
        let mut path = String::new();
        for (index, point) in points.iter().enumerate() {
            let (x, y) = self.place(*point);
            let letter = if index == 0 { 'M' } else { 'L' };
            write!(path, "{letter}{x:.1} {y:.1}").expect("a text takes all");
        }
        self.write(format_args!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\" stroke-width=\"1.5\"/>"
        ));
    }

    /// A dot for each point.
    pub fn dots(&mut self, points: &[(f64, f64)], color: &str) {
        for point in points {
            let (x, y) = self.place(*point);
            self.write(format_args!(
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{color}\"/>"
            ));
        }
    }

    /// A line at a height.
    pub fn level(&mut self, y: f64, color: &str, dashed: bool) {
        self.straight((self.x.0, y), (self.x.1, y), color, dashed);
    }

    /// A line at a place of the lower axis.
    pub fn wall(&mut self, x: f64, color: &str) {
        self.straight((x, self.y.0), (x, self.y.1), color, true);
    }

    /// What a color means.
    pub fn legend(&mut self, color: &str, text: &str) {
        let (x, y) = (self.legend, HEIGHT - 20.0);
        // A letter of this size is about 6 wide.
        self.legend += 40.0 + 6.0 * text.chars().count() as f64;
        let (square, text) = (y - 10.0, escaped(text));
        self.write(format_args!(
            "<rect x=\"{x}\" y=\"{square}\" width=\"10\" height=\"10\" fill=\"{color}\"/>"
        ));
        self.write(format_args!(
            "<text x=\"{}\" y=\"{y}\" font-size=\"11\">{text}</text>",
            x + 16.0
        ));
    }

    /// The file's text.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    fn write(&mut self, element: impl Display) {
        writeln!(self.text, "{element}").expect("a text takes all");
    }

    fn straight(&mut self, from: (f64, f64), to: (f64, f64), color: &str, dashed: bool) {
        let ((x1, y1), (x2, y2)) = (self.place(from), self.place(to));
        let dash = if dashed { " stroke-dasharray=\"5 4\"" } else { "" };
        self.write(format_args!(
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{color}\"{dash}/>"
        ));
    }

    /// Round values along both axes.
    fn ticks(&mut self) {
        let corner = self.place((self.x.0, self.y.0));
        for value in round(self.x) {
            let (x, y) = (self.place((value, self.y.0)).0, corner.1);
            self.write(format_args!(
                "<path d=\"M{x:.1} {y:.1}v5\" stroke=\"black\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                y + 19.0,
                label(value)
            ));
        }
        for value in round(self.y) {
            let y = self.place((self.x.0, value)).1;
            self.write(format_args!(
                "<path d=\"M{LEFT} {y:.1}H{}\" stroke=\"#e5e7eb\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - RIGHT,
                LEFT - 6.0,
                y + 4.0,
                label(value)
            ));
        }
        self.write(format_args!(
            "<path d=\"M{LEFT} {TOP}V{}H{}\" fill=\"none\" stroke=\"black\"/>",
            corner.1,
            WIDTH - RIGHT
        ));
    }

    fn place(&self, (x, y): (f64, f64)) -> (f64, f64) {
        let share = |value: f64, (least, most): (f64, f64)| (value - least) / (most - least);
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        (LEFT + width * share(x, self.x), HEIGHT - BOTTOM - height * share(y, self.y))
    }
}

/// A text between tags.
fn escaped(text: &str) -> String {
    text.chars().fold(String::new(), |mut to, letter| {
        match letter {
            '<' => to.push_str("&lt;"),
            '>' => to.push_str("&gt;"),
            '&' => to.push_str("&amp;"),
            // No such letter may stand in a file of XML, however it is written.
            letter if letter.is_control() => to.push(' '),
            letter => write!(to, "{letter}").expect("a text takes all"),
        }
        to
    })
}

/// A value in few letters.
fn label(value: f64) -> String {
    if value < 1e6 { value.to_string() } else { format!("{value:e}") }
}

/// Round values from the least to the largest, four to ten of them.
fn round((least, most): (f64, f64)) -> Vec<f64> {
    let step = 10f64.powf(((most - least) / 4.0).log10().floor());
    let fits = |step: &f64| (most - least) / step <= 10.0;
    let step = [step, 2.0 * step, 5.0 * step].into_iter().find(fits).unwrap_or(10.0 * step);
    let digits = (-step.log10().floor()).clamp(0.0, 9.0) as i32;
    let (from, to) = ((least / step).ceil() as i64, (most / step).floor() as i64);
    // Without what binary fractions add: 0.30000000000000004.
    let exact = |value: f64| (value * 10f64.powi(digits)).round() / 10f64.powi(digits);
    (from..=to).map(|index| exact(index as f64 * step)).collect()
}

#[cfg(test)]
mod tests {
    use super::{label, round};

    #[test]
    fn ticks_are_round() {
        assert_eq!(round((0.0, 120.0)), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]);
        assert_eq!(round((100.0, 137.0)), [100.0, 105.0, 110.0, 115.0, 120.0, 125.0, 130.0, 135.0]);
        assert_eq!(round((0.0, 0.8)), [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]);
        assert_eq!(round((0.0, 1.2e13)).len(), 7);
        assert_eq!([0.3, 250.0, 2e12].map(label), ["0.3", "250", "2e12"]);
    }
}
