//! The graph: values of the forward pass that the backward pass reads, a column a layer.

use crate::base::format::escape;
use crate::base::texts::{n, t, tr};
use pipewright_worker::protocol::{Described, Grid};
use std::fmt::Write;

const ABOVE: f64 = 4.0;
const BELOW: f64 = 44.0;
const RIGHT: f64 = 14.0;

/// A line of text needs so much.
const LINE: f64 = 13.0;

/// Where cells stand.
#[derive(Clone, Debug, PartialEq)]
pub struct CellsFrame {
    width: f64,
    height: f64,
    left: f64,
    /// First cell of each column, and their number at the end.
    first: Vec<u32>,
    rows: u32,
}

impl CellsFrame {
    pub fn new((width, height): (f64, f64), grid: &Grid) -> Self {
        let mut first = vec![0];
        for cells in &grid.columns {
            first.push(first[first.len() - 1] + cells);
        }
        let rows = grid.columns.iter().copied().max().unwrap_or(1).max(1);
        let longest = grid.rows.iter().map(|row| row.chars().count()).max().unwrap_or(0);
        let left = if longest == 0 { 12.0 } else { (longest as f64 * 6.0 + 16.0).min(width * 0.3) };
        Self { width, height, left, first, rows }
    }

    fn columns(&self) -> usize {
        self.first.len() - 1
    }

    fn pitch(&self) -> (f64, f64) {
        let columns = self.columns().max(1) as f64;
        let wide = (self.width - self.left - RIGHT) / columns;
        (wide.min(34.0), (self.height - ABOVE - BELOW) / f64::from(self.rows))
    }

    /// Corner and size of a cell.
    fn place(&self, cell: u32) -> (f64, f64, f64, f64) {
        let column = self.first.partition_point(|first| *first <= cell).saturating_sub(1);
        let row = cell - self.first[column];
        let (wide, high) = self.pitch();
        let gap = |size: f64| if size >= 6.0 { 2.0 } else { size * 0.2 };
        let (x, y) = (self.left + column as f64 * wide, ABOVE + f64::from(row) * high);
        (x, y, wide - gap(wide), high - gap(high))
    }

    /// The cell at a place of the picture.
    pub fn at(&self, x: f64, y: f64) -> Option<u32> {
        let (wide, high) = self.pitch();
        let (column, row) = ((x - self.left) / wide, (y - ABOVE) / high);
        if column < 0.0 || row < 0.0 || column as usize >= self.columns() {
            return None;
        }
        let cell = self.first[column as usize] + row as u32;
        (cell < self.first[column as usize + 1]).then_some(cell)
    }

    /// The cell that an arrow key leads to.
    pub fn step(&self, cell: u32, key: &str) -> Option<u32> {
        let column = self.first.partition_point(|first| *first <= cell).saturating_sub(1);
        let row = cell - self.first[column];
        let beside = |column: usize| {
            let cells = self.first.get(column + 1)? - self.first[column];
            Some(self.first[column] + row.min(cells.checked_sub(1)?))
        };
        match key {
            "ArrowUp" => cell.checked_sub(1),
            "ArrowDown" => Some(cell + 1).filter(|next| Some(next) < self.first.last()),
            "ArrowLeft" => beside(column.checked_sub(1)?),
            "ArrowRight" => beside(column + 1),
            _ => None,
        }
    }
}

/// States of a cell: letter test, class and name.
type State = (fn(char) -> bool, &'static str, &'static str);
const STATES: [State; 3] = [
    (|c| c == 'k', "kp", n("kept")),
    (|c| c.is_ascii_digit(), "ra", n("recomputed")),
    (|c| c == '.', "nn", n("neither kept nor recomputed")),
];

/// `cells`: a letter a cell, see [`pipewright_worker::protocol::Shown::cells`].
pub fn draw(frame: &CellsFrame, grid: &Grid, cells: &str, picked: Option<&Described>) -> String {
    let CellsFrame { width, height, .. } = *frame;
    let letters: Vec<char> = cells.chars().collect();
    let count = |test: fn(char) -> bool| letters.iter().filter(|c| test(**c)).count();
    let mut out = format!(
        "<svg width='{width}' height='{height}' role='img' aria-label='{}'>",
        tr!(
            "Values of the forward pass: {kept} kept, {again} recomputed",
            kept = count(STATES[0].0),
            again = count(STATES[1].0)
        )
    );
    // One path a state: thousands of cells are three elements of the page.
    for (test, class, _) in STATES {
        let mut path = String::new();
        for (cell, _) in letters.iter().enumerate().filter(|(_, letter)| test(**letter)) {
            let (x, y, w, h) = frame.place(cell as u32);
            let _ = write!(path, "M{x:.1} {y:.1}h{w:.1}v{h:.1}h-{w:.1}z");
        }
        let _ = write!(out, "<path d='{path}' class='{class}'/>");
    }
    names(frame, grid, &letters, &mut out);
    if let Some(node) = picked {
        edges(frame, node, &mut out);
    }
    let mut x = 12.0;
    for (_, class, name) in STATES {
        let name = t(name);
        let y = height - 17.0;
        let _ = write!(
            out,
            "<rect x='{x}' y='{y}' width='10' height='10' rx='2' class='{class}'/><text x='{}' \
             y='{}' class='ls'>{name}</text>",
            x + 16.0,
            y + 9.0
        );
        x += 28.0 + name.chars().map(wide).sum::<f64>();
    }
    out + "</svg>"
}

/// About how wide a letter of the key is.
fn wide(letter: char) -> f64 {
    if letter.is_ascii() { 6.2 } else { 11.0 }
}

/// Rows, layers, and how often a cell is run where it is more than twice.
fn names(frame: &CellsFrame, grid: &Grid, letters: &[char], out: &mut String) {
    let (wide, high) = frame.pitch();
    let every = (LINE / high).ceil().max(1.0) as usize;
    for (row, name) in grid.rows.iter().enumerate().step_by(every) {
        let y = ABOVE + (row as f64 + 0.5) * high + 3.5;
        let most = ((frame.left - 12.0) / 6.0) as usize;
        let name: String = name.chars().take(most).collect();
        let _ = write!(
            out,
            "<text x='{:.1}' y='{y:.1}' text-anchor='end' class='ls'>{}</text>",
            frame.left - 8.0,
            escape(&name)
        );
    }
    if let Some((first, layers)) = grid.layers {
        let y = frame.height - BELOW + 15.0;
        let every = (22.0 / wide).ceil().max(1.0) as usize;
        for layer in (0..layers).step_by(every) {
            let x = frame.left + (f64::from(first + layer) + 0.5) * wide - 1.0;
            let _ = write!(
                out,
                "<text x='{x:.1}' y='{y:.1}' text-anchor='middle' class='ax'>{layer}</text>"
            );
        }
        let _ = write!(
            out,
            "<text x='{:.1}' y='{y:.1}' text-anchor='end' class='ax'>{}</text>",
            frame.left - 8.0,
            t("layer")
        );
    }
    if wide < 11.0 || high < 11.0 {
        return;
    }
    for (cell, letter) in letters.iter().enumerate().filter(|(_, c)| ('3'..='9').contains(*c)) {
        let (x, y, w, h) = frame.place(cell as u32);
        let _ = write!(
            out,
            "<text x='{:.1}' y='{:.1}' text-anchor='middle' class='ct'>{}</text>",
            x + w / 2.0,
            y + h / 2.0 + 3.5,
            letter.to_digit(10).unwrap_or(1) - 1
        );
    }
}

/// What a value is made of, and what reads it.
fn edges(frame: &CellsFrame, node: &Described, out: &mut String) {
    let middle = |cell: u32| {
        let (x, y, w, h) = frame.place(cell);
        (x + w / 2.0, y + h / 2.0)
    };
    let (x, y) = middle(node.cell);
    for (cells, class) in [(&node.inputs, "ei"), (&node.readers, "er")] {
        for cell in cells {
            let (a, b) = middle(*cell);
            // Bent, so that edges along a row or a column do not hide each other.
            let (cx, cy) = ((x + a) / 2.0 + (y - b) * 0.25, (y + b) / 2.0 + (a - x) * 0.25);
            let _ = write!(
                out,
                "<path d='M{a:.1} {b:.1}Q{cx:.1} {cy:.1} {x:.1} {y:.1}' class='{class}'/>\
                 <circle cx='{a:.1}' cy='{b:.1}' r='2.5' class='{class}'/>"
            );
        }
    }
    let (x, y, w, h) = frame.place(node.cell);
    let _ = write!(
        out,
        "<rect x='{:.1}' y='{:.1}' width='{:.1}' height='{:.1}' rx='2' class='pi'/>",
        x - 1.5,
        y - 1.5,
        w + 3.0,
        h + 3.0
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let rows = vec!["conv".into(), "<relu>".into(), "add".into()];
        Grid { columns: vec![2, 3, 3, 3, 1], layers: Some((1, 3)), rows }
    }

    #[test]
    fn cells_are_found_where_they_are_drawn() {
        let frame = CellsFrame::new((400.0, 200.0), &grid());
        for cell in 0..12 {
            let (x, y, w, h) = frame.place(cell);
            assert_eq!(frame.at(x + w / 2.0, y + h / 2.0), Some(cell));
        }
        assert_eq!(frame.at(0.0, 0.0), None);
        let (x, ..) = frame.place(0);
        assert_eq!(frame.at(x + 1.0, 150.0), None, "the first column has two cells");
    }

    #[test]
    fn arrows_walk_over_columns_of_different_height() {
        let frame = CellsFrame::new((400.0, 200.0), &grid());
        assert_eq!(frame.step(4, "ArrowLeft"), Some(1));
        assert_eq!(frame.step(10, "ArrowRight"), Some(11));
        assert_eq!(frame.step(11, "ArrowRight"), None);
        assert_eq!((frame.step(0, "ArrowUp"), frame.step(11, "ArrowDown")), (None, None));
        assert_eq!(frame.step(1, "ArrowDown"), Some(2));
    }

    #[test]
    fn every_state_is_one_path_and_names_are_escaped() {
        let frame = CellsFrame::new((400.0, 200.0), &grid());
        let node =
            Described { cell: 4, inputs: vec![1], readers: vec![5, 7], ..Described::default() };
        let svg = draw(&frame, &grid(), "k.2k.3k..k2k", Some(&node));
        assert_eq!(svg.matches("<path d='M").count(), 3 + 3, "three states, three edges: {svg}");
        assert!(svg.contains("&lt;relu&gt;") && svg.contains("5 kept, 3 recomputed"), "{svg}");
        assert!(svg.contains("class='ct'>2<"), "run three times is two more: {svg}");
        let empty = CellsFrame::new((300.0, 200.0), &Grid::default());
        assert!(!draw(&empty, &Grid::default(), "", None).contains("NaN"));
        assert_eq!(empty.at(50.0, 50.0), None);
    }
}
