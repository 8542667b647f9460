//! Decision boundary: how sure a network is of its classes, over the plane.

use crate::draw::raster::Rgb;

/// How much of a class's colour the ground shows where the network is sure.
const DEEPEST: f32 = 0.5;

/// Pixels, four bytes each, of shares of class 1: the ground where it does not know, towards the
/// colours of the classes where it does.
pub fn pixels(shares: &[f32], ground: Rgb, classes: [Rgb; 2]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 * shares.len());
    for share in shares {
        // A network that has left the numbers knows nothing.
        let share = if share.is_nan() { 0.5 } else { *share };
        let hue = classes[usize::from(share > 0.5)];
        let depth = DEEPEST * (2.0 * share - 1.0).abs();
        for (from, to) in ground.into_iter().zip(hue) {
            let (from, to) = (f32::from(from), f32::from(to));
            out.push((from + depth * (to - from)).round() as u8);
        }
        out.push(255);
    }
    out
}

/// A straight piece of a line: from x, y to x, y, all between 0 and 1.
pub type Piece = [f32; 4];

/// The line on which both classes are equally likely, cell by cell (marching squares). `side` shares a
/// row.
pub fn between(shares: &[f32], side: usize) -> Vec<Piece> {
    let mut pieces = vec![];
    let at = |x: usize, y: usize| shares[y * side + x] - 0.5;
    let place = |x: f32, y: f32| ((x + 0.5) / side as f32, (y + 0.5) / side as f32);
    for y in 0..side.saturating_sub(1) {
        for x in 0..side - 1 {
            let corners = [(x, y), (x + 1, y), (x + 1, y + 1), (x, y + 1)];
            let mut met = vec![];
            for edge in 0..4 {
                let ((ax, ay), (bx, by)) = (corners[edge], corners[(edge + 1) % 4]);
                let (a, b) = (at(ax, ay), at(bx, by));
                if (a > 0.0) != (b > 0.0) {
                    let along = a / (a - b);
                    let (ax, ay, bx, by) = (ax as f32, ay as f32, bx as f32, by as f32);
                    met.push(place(ax + along * (bx - ax), ay + along * (by - ay)));
                }
            }
            for pair in met.as_chunks::<2>().0 {
                pieces.push([pair[0].0, pair[0].1, pair[1].0, pair[1].1]);
            }
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsure_is_the_ground_and_sure_is_the_class() {
        let found = pixels(&[0.5, 0.0, 1.0, f32::NAN], [0; 3], [[100, 0, 0], [0, 0, 100]]);
        assert_eq!(found[..4], [0, 0, 0, 255]);
        assert_eq!((found[4], found[10], found[12]), (50, 50, 0));
    }

    #[test]
    fn the_line_is_where_the_classes_meet() {
        let side = 20;
        // Class 1 within a circle.
        let share = |i: usize| {
            let (x, y) = ((i % side) as f32 - 9.5, (i / side) as f32 - 9.5);
            1.0 / (1.0 + (x.hypot(y) - 6.0).exp())
        };
        let shares: Vec<f32> = (0..side * side).map(share).collect();
        let pieces = between(&shares, side);
        assert!(pieces.len() > 24, "{}", pieces.len());
        for [ax, ay, bx, by] in pieces {
            for (x, y) in [(ax, ay), (bx, by)] {
                let radius = (x - 0.5).hypot(y - 0.5) * side as f32;
                assert!((radius - 6.0).abs() < 0.1, "{radius}");
            }
        }
        assert!(between(&vec![0.9; 400], side).is_empty() && between(&[], 0).is_empty());
    }
}
