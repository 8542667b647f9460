//! Places of the values of parameters, and reading them.

use super::proto::{self, data_type};
use super::{Beside, Imported, OnnxError};
use crate::ids::ParamId;
use bytes::Bytes;
use std::borrow::Cow;
use thiserror::Error;

/// Where a parameter's first values come from.
#[derive(Clone, Debug, PartialEq)]
pub struct Weight {
    /// The values.
    pub source: Source,
    /// Sizes of the tensor at the source, outermost first.
    pub shape: Vec<u64>,
    /// Axis `i` of the parameter is axis `axes[i]` of the source. `[1, 0]` for a weight that the
    /// file keeps as `[in, out]`.
    pub axes: Vec<usize>,
}

/// The values at their source.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// Little-endian bytes in the file.
    Bytes {
        /// ONNX's number of the element type.
        kind: i32,
        /// All of them.
        data: Bytes,
    },
    /// In another file.
    External {
        /// ONNX's number of the element type.
        kind: i32,
        /// Where.
        place: Place,
    },
    /// Computed while importing: constants, tables of angles.
    Values(Vec<f32>),
    /// Not in the file: the same value everywhere.
    Fill(f32),
    /// Unknown: the parameters of an opaque operation.
    None,
}

/// A part of another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, relative to the model's folder.
    pub file: String,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Why a parameter's values cannot be had.
#[derive(Debug, Error)]
pub enum WeightError<E: std::error::Error> {
    /// The other file cannot be read.
    #[error("weights of `{name}` are in `{file}`, {length} bytes from byte {offset}: {error}", file = .place.file, offset = .place.offset, length = .place.length)]
    Read {
        /// The parameter.
        name: String,
        /// Where its values are.
        place: Place,
        /// What happened.
        error: E,
    },
    /// Too few or too many bytes, or a type that is no number.
    #[error("weights of `{name}`: {why}")]
    Content {
        /// The parameter.
        name: String,
        /// What does not fit.
        why: String,
    },
}

impl Imported {
    /// The values of a parameter in the layout of the graph, row-major. `read` gives the bytes of a
    /// part of another file. `None` for a parameter of an opaque operation.
    ///
    /// # Errors
    /// When `read` fails, or the bytes are not those of the parameter.
    ///
    /// # Panics
    /// For an id of another graph.
    pub fn tensor<E: std::error::Error>(
        &self,
        id: ParamId,
        mut read: impl FnMut(&Place) -> Result<Vec<u8>, E>,
    ) -> Result<Option<Vec<f32>>, WeightError<E>> {
        let (param, weight) = (self.graph.param(id), &self.weights[id.index()]);
        let name = &param.name;
        let elements = usize::try_from(param.elements()).unwrap_or(usize::MAX);
        let mut read_external = |place: &Place| {
            read(place).map_err(|error| {
                let (name, place) = (name.clone(), place.clone());
                WeightError::Read { name, place, error }
            })
        };
        let content = |why: String| WeightError::Content { name: name.clone(), why };
        let values = match &weight.source {
            Source::None => return Ok(None),
            Source::Fill(value) => return Ok(Some(vec![*value; elements])),
            Source::Values(values) => values.clone(),
            Source::Bytes { kind, data } => decode(*kind, data).map_err(content)?,
            Source::External { kind, place } => {
                decode(*kind, &read_external(place)?).map_err(content)?
            }
        };
        if values.len() != elements {
            return Err(content(format!("{} values for {:?}", values.len(), param.shape)));
        }
        Ok(Some(permute(&values, &weight.shape, &weight.axes)))
    }

    /// Names of the other files that weights are in, in order, each once.
    pub fn external_files(&self) -> Vec<&str> {
        let mut files: Vec<&str> = vec![];
        for weight in &self.weights {
            if let Source::External { place, .. } = &weight.source
                && !files.contains(&place.file.as_str())
            {
                files.push(&place.file);
            }
        }
        files
    }
}

/// Numbers of an ONNX element type from little-endian bytes, as single precision.
///
/// # Errors
/// For a type without numbers, or bytes that end within an element.
fn decode(kind: i32, bytes: &[u8]) -> Result<Vec<f32>, String> {
    let wide = |value: f64| value as f32;
    decode_with(kind, bytes, |x| x, wide)
}

fn decode_with<T>(
    kind: i32,
    bytes: &[u8],
    single: impl Fn(f32) -> T,
    double: impl Fn(f64) -> T,
) -> Result<Vec<T>, String> {
    fn each<const N: usize, T>(bytes: &[u8], of: impl Fn([u8; N]) -> T) -> Result<Vec<T>, String> {
        let (elements, rest) = bytes.as_chunks::<N>();
        match rest.is_empty() {
            true => Ok(elements.iter().map(|e| of(*e)).collect()),
            false => Err(format!("{} bytes are no elements of {N} bytes", bytes.len())),
        }
    }
    match kind {
        data_type::FLOAT => each(bytes, |b| single(f32::from_le_bytes(b))),
        data_type::BFLOAT16 => {
            each(bytes, |b| single(f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)))
        }
        data_type::FLOAT16 => each(bytes, |b| single(half(u16::from_le_bytes(b)))),
        data_type::DOUBLE => each(bytes, |b| double(f64::from_le_bytes(b))),
        data_type::INT64 => each(bytes, |b| double(i64::from_le_bytes(b) as f64)),
        data_type::UINT64 => each(bytes, |b| double(u64::from_le_bytes(b) as f64)),
        data_type::INT32 => each(bytes, |b| double(i32::from_le_bytes(b).into())),
        data_type::UINT32 => each(bytes, |b| double(u32::from_le_bytes(b).into())),
        data_type::INT16 => each(bytes, |b| double(i16::from_le_bytes(b).into())),
        data_type::UINT16 => each(bytes, |b| double(u16::from_le_bytes(b).into())),
        data_type::INT8 => each(bytes, |b| double(i8::from_le_bytes(b).into())),
        data_type::UINT8 | data_type::BOOL => each(bytes, |[b]| double(b.into())),
        _ => Err(format!("elements of type {kind} are no numbers")),
    }
}

/// IEEE 754 half precision.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, bits >> 10 & 31, bits & 1023);
    let size = match (exponent, fraction) {
        (0, _) => f32::from(fraction) / (1u32 << 24) as f32,
        (31, 0) => f32::INFINITY,
        (31, _) => f32::NAN,
        _ => f32::from_bits(u32::from(exponent + 112) << 23 | u32::from(fraction) << 13),
    };
    if sign == 1 { -size } else { size }
}

/// The numbers of a tensor that is in the file.
pub(super) fn numbers(tensor: &proto::Tensor, elements: usize) -> Option<Vec<f64>> {
    let bytes = bytes_of(tensor, elements)?;
    let values = decode_with(tensor.data_type, &bytes, f64::from, |x| x).ok()?;
    (values.len() == elements).then_some(values)
}

/// Little-endian bytes of a tensor that is in the file, whichever field they are in.
fn bytes_of(tensor: &proto::Tensor, elements: usize) -> Option<Cow<'_, [u8]>> {
    if !tensor.raw_data.is_empty() || elements == 0 {
        return Some(Cow::Borrowed(&tensor.raw_data));
    }
    let ints = &tensor.int32_data;
    Some(Cow::Owned(match tensor.data_type {
        data_type::FLOAT => tensor.float_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        data_type::DOUBLE => tensor.double_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        data_type::INT64 => tensor.int64_data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        data_type::INT32 => ints.iter().flat_map(|x| x.to_le_bytes()).collect(),
        data_type::INT16 | data_type::UINT16 | data_type::FLOAT16 | data_type::BFLOAT16 => {
            ints.iter().flat_map(|x| (*x as u16).to_le_bytes()).collect()
        }
        data_type::INT8 | data_type::UINT8 | data_type::BOOL => {
            ints.iter().map(|x| *x as u8).collect()
        }
        _ => return None,
    }))
}

/// Whether two matrices of single precision hold the same numbers, the second one `turned`; none
/// when they are not both in the file.
pub(super) fn same_numbers(a: &proto::Tensor, b: &proto::Tensor, turned: bool) -> Option<bool> {
    let [rows, columns] = a.dims[..] else { return None };
    let (rows, columns) = (usize::try_from(rows).ok()?, usize::try_from(columns).ok()?);
    let whole = |t: &proto::Tensor| {
        let inside = t.data_type == data_type::FLOAT && t.data_location != 1;
        inside && Some(t.raw_data.len()) == rows.checked_mul(columns).and_then(|n| n.checked_mul(4))
    };
    if !whole(a) || !whole(b) {
        return None;
    }
    let ((a, _), (b, _)) = (a.raw_data.as_chunks::<4>(), b.raw_data.as_chunks::<4>());
    let at = |row: usize, column: usize| match turned {
        true => column * rows + row,
        false => row * columns + column,
    };
    let row_is_same =
        |row| (0..columns).all(|column| a[row * columns + column] == b[at(row, column)]);
    Some((0..rows).all(row_is_same))
}

/// Refuses an initialiser whose values are not as many as its sizes say, or lie where none may: damage is no
/// operation that is not supported.
pub(super) fn check(tensor: &proto::Tensor, elements: u64) -> Result<(), OnnxError> {
    if tensor.data_location == 1 {
        return source(tensor, elements).map(|_| ());
    }
    let given = match (tensor.raw_data.is_empty(), tensor.data_type) {
        (false, kind) => width(kind).map(|width| (tensor.raw_data.len() as u64, width)),
        (true, data_type::FLOAT) => Some((tensor.float_data.len() as u64, 1)),
        (true, data_type::DOUBLE) => Some((tensor.double_data.len() as u64, 1)),
        (true, data_type::INT64) => Some((tensor.int64_data.len() as u64, 1)),
        (true, data_type::UINT32 | data_type::UINT64) => None,
        (true, _) => Some((tensor.int32_data.len() as u64, 1)),
    };
    match given {
        Some((given, width)) if Some(given) != width.checked_mul(elements) => {
            let what = if width == 1 && tensor.raw_data.is_empty() { "values" } else { "bytes" };
            let why = format!(
                "has {given} {what} for {elements} elements: the file is damaged; export it again"
            );
            Err(OnnxError::Tensor { name: tensor.name.clone(), why })
        }
        _ => Ok(()),
    }
}

/// Where the values of an initialiser are.
pub(super) fn source(tensor: &proto::Tensor, elements: u64) -> Result<Source, OnnxError> {
    let kind = tensor.data_type;
    let refuse = |why: String| OnnxError::Tensor { name: tensor.name.clone(), why };
    if tensor.data_location != 1 {
        let elements = usize::try_from(elements).map_err(|_| refuse("is too large".into()))?;
        let data = match bytes_of(tensor, elements) {
            Some(Cow::Borrowed(_)) => tensor.raw_data.clone(),
            Some(Cow::Owned(bytes)) => bytes.into(),
            None => return Err(refuse(format!("type {kind} has no numbers here"))),
        };
        let size = width(kind).ok_or_else(|| refuse(format!("type {kind} is no number")))?;
        return match data.len() as u64 == size * elements as u64 {
            true => Ok(Source::Bytes { kind, data }),
            false => Err(refuse(format!("has {} bytes for {elements} elements", data.len()))),
        };
    }
    let entry = |key: &str| tensor.external_data.iter().find(|e| e.key == key).map(|e| &e.value);
    let number = |key: &str, absent: u64| match entry(key) {
        None => Ok(absent),
        Some(text) => {
            text.parse().map_err(|_| refuse(format!("has {key} `{text}`, which is no number")))
        }
    };
    let file = entry("location").ok_or_else(|| refuse("has no location".into()))?.clone();
    let size = width(kind).ok_or_else(|| refuse(format!("type {kind} is no number")))?;
    let (offset, length) = (number("offset", 0)?, number("length", size * elements)?);
    if file.is_empty()
        || file.starts_with(['/', '\\'])
        || file.split(['/', '\\']).any(|p| p == "..")
    {
        return Err(refuse(format!("has its values in `{file}`, which leaves the model's folder")));
    }
    if length != size * elements || offset.checked_add(length).is_none() {
        return Err(refuse(format!("has {length} bytes in `{file}` for {elements} elements")));
    }
    Ok(Source::External { kind, place: Place { file, offset, length } })
}

/// The tensor with its values in it, fetched where they lie in another file; none when they cannot
/// be had.
pub(super) fn fetched<'t>(
    tensor: &'t proto::Tensor,
    beside: Beside<'_>,
) -> Option<Cow<'t, proto::Tensor>> {
    if tensor.data_location != 1 {
        return Some(Cow::Borrowed(tensor));
    }
    let elements = u64::try_from(super::tensor::count(&tensor.dims)?).ok()?;
    let Ok(Source::External { kind, place }) = source(tensor, elements) else { return None };
    let bytes = beside(&place).filter(|bytes| bytes.len() as u64 == place.length)?;
    Some(Cow::Owned(proto::Tensor {
        name: tensor.name.clone(),
        dims: tensor.dims.clone(),
        data_type: kind,
        raw_data: bytes.into(),
        ..proto::Tensor::default()
    }))
}

/// Bytes of one element.
fn width(kind: i32) -> Option<u64> {
    Some(match kind {
        data_type::DOUBLE | data_type::INT64 | data_type::UINT64 => 8,
        data_type::FLOAT | data_type::INT32 | data_type::UINT32 => 4,
        data_type::FLOAT16 | data_type::BFLOAT16 | data_type::INT16 | data_type::UINT16 => 2,
        data_type::INT8 | data_type::UINT8 | data_type::BOOL => 1,
        _ => return None,
    })
}

/// Axis `i` of the result is axis `axes[i]` of `values`, whose sizes are `shape`.
fn permute(values: &[f32], shape: &[u64], axes: &[usize]) -> Vec<f32> {
    if axes.iter().copied().eq(0..axes.len()) {
        return values.to_vec();
    }
    let mut strides = vec![1usize; shape.len()];
    for i in (1..shape.len()).rev() {
        strides[i - 1] = strides[i] * shape[i] as usize;
    }
    let mut offsets = vec![0usize];
    for axis in axes {
        let (size, stride) = (shape[*axis] as usize, strides[*axis]);
        offsets = offsets.iter().flat_map(|at| (0..size).map(move |i| at + i * stride)).collect();
    }
    offsets.into_iter().map(|at| values[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_float_type_gives_the_same_numbers() {
        let numbers = [0.0f32, 1.0, -2.5, 0.5, -0.0, 65504.0];
        let singles: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(decode(data_type::FLOAT, &singles).unwrap(), numbers);
        let doubles: Vec<u8> = numbers.iter().flat_map(|x| f64::from(*x).to_le_bytes()).collect();
        assert_eq!(decode(data_type::DOUBLE, &doubles).unwrap(), numbers);
        let halves = [0x0000u16, 0x3c00, 0xc100, 0x3800, 0x8000, 0x7bff];
        let halves: Vec<u8> = halves.iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(decode(data_type::FLOAT16, &halves).unwrap(), numbers);
        let upper: Vec<u8> =
            numbers[..5].iter().flat_map(|x| ((x.to_bits() >> 16) as u16).to_le_bytes()).collect();
        assert_eq!(decode(data_type::BFLOAT16, &upper).unwrap(), numbers[..5]);
        let small = [0x0001u16, 0x03ff, 0x7c00];
        let small: Vec<u8> = small.iter().flat_map(|x| x.to_le_bytes()).collect();
        let expected = [5.960_464_5e-8, 6.097_555e-5, f32::INFINITY];
        assert_eq!(decode(data_type::FLOAT16, &small).unwrap(), expected);
    }

    #[test]
    fn bytes_that_end_within_an_element_are_refused() {
        assert!(decode(data_type::FLOAT, &[0; 7]).unwrap_err().contains("7 bytes"));
        assert!(decode(8, &[]).is_err());
    }

    #[test]
    fn a_transposed_weight_is_turned() {
        let values = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        assert_eq!(permute(&values, &[2, 3], &[1, 0]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }
}
