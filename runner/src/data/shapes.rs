//! Images of shapes, drawn when they are asked for: 16 classes that a small convolutional network
//! learns over hundreds of steps, not tens, and not to the last.
//!
//! A class is one of four outlines filled with one of four textures. Place, size, turn, colours,
//! the width of stripes and a slope of the background are drawn for each image, and every value
//! has noise of its own.

use super::DataError;
use super::random::{Purpose, bell, stream, symmetric};
use pipewright_core::graph::{InputSpec, SampleSpec, TargetSpec};
use rand_chacha::rand_core::Rng;

/// Outlines times textures.
pub(super) const CLASSES: u64 = 16;

/// Standard deviation of the noise; shapes are brighter than their ground by 0.5 to 1.5.
const NOISE: f32 = 0.25;

/// One split.
#[derive(Debug)]
pub(super) struct Shapes {
    len: u64,
    purpose: Purpose,
    seed: u64,
    /// Channels, rows, columns.
    image: [usize; 3],
}

/// The splits of `lens` = [train, test] images.
///
/// # Errors
/// [`DataError::Shapes`] for a model that does not tell 16 classes of images apart.
pub(super) fn pair(
    lens: [u64; 2],
    sample: &SampleSpec,
    seed: u64,
) -> Result<[Shapes; 2], DataError> {
    let refuse = || DataError::Shapes { sample: sample.to_string() };
    let InputSpec::Values { shape } = &sample.input else { return Err(refuse()) };
    let [channels, rows, columns] = shape[..] else { return Err(refuse()) };
    let TargetSpec::Classes { count: 1, classes: CLASSES } = sample.target else {
        return Err(refuse());
    };
    let image = [channels, rows, columns].map(|size| size as usize);
    let split = |len, purpose| Shapes { len, purpose, seed, image };
    Ok([split(lens[0], Purpose::TrainNoise), split(lens[1], Purpose::TestNoise)])
}

/// What is drawn for one image. Lengths are in units of half an edge.
struct Picture {
    class: u64,
    centre: [f32; 2],
    radius: f32,
    /// The first axis of the shape's own frame.
    axis: [f32; 2],
    /// Half the width of a stripe, and where the first begins.
    stripes: (f32, f32),
    slope: [f32; 2],
}

impl Picture {
    fn draw(class: u64, rng: &mut impl Rng) -> Self {
        let mut next = || symmetric(rng.next_u32());
        let centre = [next() * 0.25, next() * 0.25];
        let radius = 0.6 + 0.15 * next();
        // A turn of at most 27 degrees either way: squares stay apart from diamonds.
        let lean = 0.5 * next();
        let length = (1.0 + lean * lean).sqrt();
        let axis = [1.0 / length, lean / length];
        let stripes = (0.2 + 0.04 * next(), next());
        Self { class, centre, radius, axis, stripes, slope: [next() * 0.4, next() * 0.4] }
    }

    /// Place in the shape's own frame, whose unit is its radius.
    fn own(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        let [x, y] = [(x - self.centre[0]) / self.radius, (y - self.centre[1]) / self.radius];
        let [a, b] = self.axis;
        [a * x + b * y, a * y - b * x]
    }

    fn is_inside(&self, place: [f32; 2]) -> bool {
        let [x, y] = self.own(place);
        let distance = x * x + y * y;
        match self.class / 4 {
            0 => distance < 1.0,
            1 => x.abs().max(y.abs()) < 0.85,
            2 => y < 0.7 && y > -1.1 + 1.9 * x.abs(),
            _ => x.abs().max(y.abs()) < 1.0 && x.abs().min(y.abs()) < 0.33,
        }
    }

    /// Whether the texture is dark there.
    fn is_dark(&self, place: [f32; 2]) -> bool {
        let [x, y] = self.own(place);
        let (half, shift) = self.stripes;
        let half = half / self.radius;
        let odd = |along: f32| ((along / half + shift).floor() as i32) & 1 == 1;
        match self.class % 4 {
            0 => false,
            1 => odd(x),
            2 => odd(y),
            _ => odd(x) != odd(y),
        }
    }
}

impl Shapes {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Classes take turns: every split is balanced, and the sampler shuffles.
    pub(super) fn class(&self, index: u64) -> u32 {
        (index % CLASSES) as u32
    }

    pub(super) fn input(&self, index: u64, out: &mut [u32]) {
        let mut rng = stream(self.purpose, self.seed, index);
        let picture = Picture::draw(u64::from(self.class(index)), &mut rng);
        let [_, rows, columns] = self.image;
        let place = |at: usize, edge: usize| (2 * at + 1) as f32 / edge as f32 - 1.0;
        let out: &mut [f32] = bytemuck::cast_slice_mut(out);
        for plane in out.chunks_exact_mut(rows * columns) {
            let ground = 0.5 * symmetric(rng.next_u32());
            let step = 0.5 + 0.5 * (symmetric(rng.next_u32()) + 1.0);
            let colour = ground + step;
            for (at, value) in plane.iter_mut().enumerate() {
                let [x, y] = [place(at % columns, columns), place(at / columns, rows)];
                let shows = picture.is_inside([x, y]) && !picture.is_dark([x, y]);
                let below = ground + picture.slope[0] * x + picture.slope[1] * y;
                *value = if shows { colour } else { below } + NOISE * bell(rng.next_u32());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(shape: &[u64], classes: u64) -> SampleSpec {
        SampleSpec {
            input: InputSpec::Values { shape: shape.to_vec() },
            target: TargetSpec::Classes { count: 1, classes },
        }
    }

    #[test]
    fn images_are_a_function_of_seed_and_index() {
        let [train, test] = pair([32, 32], &spec(&[3, 16, 16], 16), 7).unwrap();
        let image = |split: &Shapes, index| {
            let mut out = vec![0; 3 * 16 * 16];
            split.input(index, &mut out);
            out
        };
        assert_eq!(image(&train, 5), image(&train, 5));
        assert_ne!(image(&train, 5), image(&train, 21), "of one class");
        assert_ne!(image(&train, 5), image(&test, 5));
        assert_eq!((train.class(5), train.class(21), train.len()), (5, 5, 32));
    }

    #[test]
    fn classes_differ_in_where_the_shape_shows() {
        let mut rng = stream(Purpose::Centre, 1, 0);
        let mut counts = vec![];
        for class in 0..CLASSES {
            let picture = Picture::draw(class, &mut rng);
            let places =
                (0..400).map(|i| [(i % 20) as f32 / 10.0 - 0.95, (i / 20) as f32 / 10.0 - 0.95]);
            let inside = places.clone().filter(|place| picture.is_inside(*place)).count();
            let shown = places.filter(|p| picture.is_inside(*p) && !picture.is_dark(*p)).count();
            assert!(inside > 15 && shown > 5 && shown <= inside, "class {class}: {shown}/{inside}");
            counts.push((inside, shown));
        }
        assert!(counts.iter().skip(1).step_by(4).all(|(inside, shown)| shown < inside));
    }

    #[test]
    fn other_models_are_refused() {
        for spec in [spec(&[3, 16, 16], 10), spec(&[64], 16)] {
            let error = pair([1, 1], &spec, 1).unwrap_err().to_string();
            assert!(error.contains("16 classes"), "{error}");
        }
    }
}
