//! Unfolding small images by a table: where every unfolded element of a plane comes from. Rows of
//! a few elements are not worth the care that [`unfold`](super::unfold) takes of each.

use crate::Geometry;

/// Unfolded elements of one plane.
const MOST_ELEMENTS: usize = 4096;

/// Elements of one plane.
const MOST_PLANE: usize = 1024;

/// The table, on the stack.
pub struct Places {
    /// For each (kernel row, kernel column, position) the element of the plane; one past its end
    /// for the border.
    table: [u16; MOST_ELEMENTS],
    /// Kernel elements, positions, elements of a plane.
    sizes: [usize; 3],
}

impl Places {
    /// None when the planes are too large.
    pub fn new(g: &Geometry) -> Option<Self> {
        let sizes = [g.kernel[0] * g.kernel[1], g.positions(), g.size[0] * g.size[1]];
        if sizes[0] * sizes[1] > MOST_ELEMENTS || sizes[2] > MOST_PLANE {
            return None;
        }
        let mut table = [sizes[2] as u16; MOST_ELEMENTS];
        for k in 0..sizes[0] {
            let (kr, kc) = (k / g.kernel[1], k % g.kernel[1]);
            let row = &mut table[k * sizes[1]..][..sizes[1]];
            for r in g.inside(0, kr, 0..g.out[0]) {
                let image_row = r * g.stride[0] + kr * g.dilation[0] - g.padding[0];
                for c in g.inside(1, kc, 0..g.out[1]) {
                    let column = c * g.stride[1] + kc * g.dilation[1] - g.padding[1];
                    row[r * g.out[1] + c] = (image_row * g.size[1] + column) as u16;
                }
            }
        }
        Some(Self { table, sizes })
    }

    /// Rows of the table, one a kernel element.
    fn rows(&self) -> impl Iterator<Item = &[u16]> {
        self.table.chunks_exact(self.sizes[1]).take(self.sizes[0])
    }

    /// As [`unfold`](super::unfold::unfold), of all output rows.
    pub fn unfold(&self, image: &[f32], (unfolded, stride): (&mut [f32], usize)) {
        let [kernel, positions, len] = self.sizes;
        // The border is a zero behind the plane.
        let mut plane = [0.0; MOST_PLANE + 1];
        for (channel, image) in image.chunks_exact(len).enumerate() {
            plane[..len].copy_from_slice(image);
            for (row, places) in (channel * kernel..).zip(self.rows()) {
                let out = &mut unfolded[row * stride..][..positions];
                for (out, place) in out.iter_mut().zip(places) {
                    *out = plane[usize::from(*place)];
                }
            }
        }
    }

    /// Adds the unfolded gradient of all output rows, one row of it a position, to the gradient of
    /// the image.
    pub fn fold_turned(&self, unfolded: &[f32], image: &mut [f32]) {
        let [kernel, positions, len] = self.sizes;
        let channels = image.len() / len;
        let mut plane = [0.0; MOST_PLANE + 1];
        for (channel, image) in image.chunks_exact_mut(len).enumerate() {
            plane[..len].copy_from_slice(image);
            let rows = unfolded.chunks_exact(channels * kernel);
            for (position, row) in rows.enumerate() {
                let terms = &row[channel * kernel..][..kernel];
                let places = self.table[position..].iter().step_by(positions);
                for (term, place) in terms.iter().zip(places) {
                    plane[usize::from(*place)] += term;
                }
            }
            image.copy_from_slice(&plane[..len]);
        }
    }
}
