//! The windows of convolutions and poolings.

use super::node::Attributes;
use crate::graph::Pair;

/// No window has more rows, columns, steps or padding.
const LIMIT: i64 = 1 << 12;

/// Kernel, steps and padding of an operation on images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    pub kernel: Pair,
    pub stride: Pair,
    /// Rows and columns before the image.
    pub begin: Pair,
    /// Rows and columns after it.
    pub end: Pair,
    pub dilation: Pair,
    pub ceil: bool,
}

impl Frame {
    /// From a node's attributes, over an image of `size` rows and columns; of a transposed convolution with so many
    /// rows and columns added to its output.
    pub fn read(
        a: &Attributes,
        kernel: Option<[i64; 2]>,
        size: [i64; 2],
        transposed: Option<Pair>,
    ) -> Result<Self, String> {
        let kernel = match a.ints("kernel_shape") {
            Some(given) => pair("kernel_shape", given)?,
            None => pair("kernel", &kernel.ok_or("has no kernel_shape")?)?,
        };
        let two = |name: &str| a.ints(name).map_or(Ok([1; 2]), |given| pair(name, given));
        let (stride, dilation) = (two("strides")?, two("dilations")?);
        if [kernel, stride, dilation].iter().flatten().any(|n| *n == 0) {
            return Err("kernel, strides and dilations must be at least 1".into());
        }
        let ceil = a.int("ceil_mode").unwrap_or(0) != 0;
        let mut frame = Self { kernel, stride, begin: [0; 2], end: [0; 2], dilation, ceil };
        match a.text("auto_pad").unwrap_or("NOTSET") {
            "NOTSET" | "" => {
                if let Some(pads) = a.ints("pads") {
                    let [top, left, bottom, right] = pads else {
                        return Err(format!("pads {pads:?} are not those of an image"));
                    };
                    frame.begin = pair("pads", &[*top, *left])?;
                    frame.end = pair("pads", &[*bottom, *right])?;
                }
            }
            "VALID" => {}
            same @ ("SAME_UPPER" | "SAME_LOWER") => {
                frame.same(size, same == "SAME_UPPER", transposed)
            }
            other => return Err(format!("auto_pad `{other}`")),
        }
        Ok(frame)
    }

    /// As many windows as steps fit the image; what is odd goes to the end, or to the beginning. Of a transposed
    /// convolution, with so many rows and columns added: as many pixels as the image has, times the steps.
    fn same(&mut self, size: [i64; 2], upper: bool, transposed: Option<Pair>) {
        for i in 0..2 {
            let (size, stride) = (size[i].unsigned_abs(), self.stride[i]);
            let span = self.dilation[i] * (self.kernel[i] - 1) + 1;
            let whole = match transposed {
                Some(extra) => (span + extra[i]).saturating_sub(stride),
                None => ((size.div_ceil(stride).max(1) - 1) * stride + span).saturating_sub(size),
            };
            let (less, more) = (whole / 2, whole.div_ceil(2));
            (self.begin[i], self.end[i]) = if upper { (less, more) } else { (more, less) };
        }
    }

    /// Padding, when it is the same on both sides.
    pub fn padding(&self) -> Result<Pair, String> {
        match self.begin == self.end {
            true => Ok(self.begin),
            false => Err(format!(
                "pads {:?} before and {:?} after the image; both sides must be equal",
                self.begin, self.end
            )),
        }
    }

    /// Rows and columns of the output; none when no window fits.
    pub fn output(&self, size: [i64; 2]) -> Option<[i64; 2]> {
        let mut output = [0; 2];
        for i in 0..2 {
            let span = self.dilation[i] * (self.kernel[i] - 1) + 1;
            let whole = u64::try_from(size[i]).ok()?.checked_add(self.begin[i] + self.end[i])?;
            let room = whole.checked_sub(span)?;
            let mut count = room / self.stride[i] + 1;
            if self.ceil {
                count = room.div_ceil(self.stride[i]) + 1;
                // A window that would begin in the padding behind the image is dropped.
                count -= u64::from((count - 1) * self.stride[i] >= whole - self.end[i]);
            }
            output[i] = i64::try_from(count).ok()?;
        }
        Some(output)
    }

    /// Rows and columns of a transposed convolution's output.
    pub fn enlarged(&self, size: [i64; 2], extra: Pair) -> Option<[i64; 2]> {
        let mut output = [0; 2];
        for i in 0..2 {
            let span = self.dilation[i] * (self.kernel[i] - 1) + 1;
            let steps = u64::try_from(size[i]).ok()?.checked_sub(1)?.checked_mul(self.stride[i])?;
            let whole = steps.checked_add(span + extra[i])?;
            output[i] = i64::try_from(whole.checked_sub(self.begin[i] + self.end[i])?).ok()?;
        }
        Some(output)
    }
}

/// Two small numbers.
pub(super) fn pair(what: &str, given: &[i64]) -> Result<Pair, String> {
    match given {
        [a, b] if (0..=LIMIT).contains(a) && (0..=LIMIT).contains(b) => Ok([*a as u64, *b as u64]),
        [_, _] => Err(format!("{what} {given:?} is not between 0 and {LIMIT}")),
        _ => Err(format!("{what} {given:?} is not that of an image: two axes are needed")),
    }
}
