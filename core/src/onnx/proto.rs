//! The parts of ONNX's protocol buffer messages that an import needs, declared by hand with the
//! field numbers of `onnx.proto`; fields that are not declared are skipped while reading.

use bytes::Bytes;
use prost::Message;

/// A file.
#[derive(Clone, PartialEq, Message)]
pub struct Model {
    /// Who wrote it: `pytorch`.
    #[prost(string, tag = "2")]
    pub producer_name: String,
    /// The network.
    #[prost(message, optional, tag = "7")]
    pub graph: Option<Graph>,
    /// Versions of the operator sets.
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSet>,
    /// Functions that nodes call by name.
    #[prost(message, repeated, tag = "25")]
    pub functions: Vec<Function>,
}

/// Version of an operator set.
#[derive(Clone, PartialEq, Message)]
pub struct OperatorSet {
    /// Empty, or `ai.onnx`, for the standard one.
    #[prost(string, tag = "1")]
    pub domain: String,
    /// Its version.
    #[prost(int64, tag = "2")]
    pub version: i64,
}

/// Nodes in topological order with the tensors that they need.
#[derive(Clone, PartialEq, Message)]
pub struct Graph {
    /// The operations.
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<Node>,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Weights and constants.
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<Tensor>,
    /// What is fed in; old files list the initialisers here as well.
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfo>,
    /// What comes out.
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfo>,
    /// Shapes of values between.
    #[prost(message, repeated, tag = "13")]
    pub value_info: Vec<ValueInfo>,
    /// Remarks of the exporter.
    #[prost(message, repeated, tag = "16")]
    pub metadata_props: Vec<Entry>,
}

/// One operation.
#[derive(Clone, PartialEq, Message)]
pub struct Node {
    /// Names of the values read; an empty name is an input left out.
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    /// Names of the values written.
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    /// Its name, often the path of a module.
    #[prost(string, tag = "3")]
    pub name: String,
    /// What it computes.
    #[prost(string, tag = "4")]
    pub op_type: String,
    /// Its numbers.
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<Attribute>,
    /// The operator set, or whose function it calls.
    #[prost(string, tag = "7")]
    pub domain: String,
    /// Which of several functions of one name.
    #[prost(string, tag = "8")]
    pub overload: String,
    /// Remarks of the exporter, such as the modules around.
    #[prost(message, repeated, tag = "9")]
    pub metadata_props: Vec<Entry>,
}

/// A number, a text or a tensor of an operation.
#[derive(Clone, PartialEq, Message)]
pub struct Attribute {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// A number.
    #[prost(float, tag = "2")]
    pub f: f32,
    /// A whole number.
    #[prost(int64, tag = "3")]
    pub i: i64,
    /// A text.
    #[prost(bytes = "bytes", tag = "4")]
    pub s: Bytes,
    /// A tensor.
    #[prost(message, optional, tag = "5")]
    pub t: Option<Tensor>,
    /// Numbers.
    #[prost(float, repeated, tag = "7")]
    pub floats: Vec<f32>,
    /// Whole numbers.
    #[prost(int64, repeated, tag = "8")]
    pub ints: Vec<i64>,
    /// Inside of a function: the attribute of the call that stands here.
    #[prost(string, tag = "21")]
    pub ref_attr_name: String,
}

/// A tensor with its values, or with the place where they are.
#[derive(Clone, PartialEq, Message)]
pub struct Tensor {
    /// Sizes.
    #[prost(int64, repeated, tag = "1")]
    pub dims: Vec<i64>,
    /// Type of the elements, see [`data_type`].
    #[prost(int32, tag = "2")]
    pub data_type: i32,
    /// Values of single precision.
    #[prost(float, repeated, tag = "4")]
    pub float_data: Vec<f32>,
    /// Values of 32 bits and fewer; half precision as bit patterns.
    #[prost(int32, repeated, tag = "5")]
    pub int32_data: Vec<i32>,
    /// Values of 64 bits.
    #[prost(int64, repeated, tag = "7")]
    pub int64_data: Vec<i64>,
    /// Its name.
    #[prost(string, tag = "8")]
    pub name: String,
    /// Values as little-endian bytes.
    #[prost(bytes = "bytes", tag = "9")]
    pub raw_data: Bytes,
    /// Values of double precision.
    #[prost(double, repeated, tag = "10")]
    pub double_data: Vec<f64>,
    /// `location`, `offset` and `length` in another file.
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<Entry>,
    /// 1 when the values are in another file.
    #[prost(int32, tag = "14")]
    pub data_location: i32,
}

/// A key and its value.
#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    /// The key.
    #[prost(string, tag = "1")]
    pub key: String,
    /// Its value.
    #[prost(string, tag = "2")]
    pub value: String,
}

/// Name and type of a value.
#[derive(Clone, PartialEq, Message)]
pub struct ValueInfo {
    /// Name of the value.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<Type>,
}

/// Type of a value; only tensors are declared.
#[derive(Clone, PartialEq, Message)]
pub struct Type {
    /// A tensor.
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorType>,
}

/// Type of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct TensorType {
    /// Type of the elements, see [`data_type`].
    #[prost(int32, tag = "1")]
    pub elem_type: i32,
    /// Sizes, when known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<Shape>,
}

/// Sizes of a tensor.
#[derive(Clone, PartialEq, Message)]
pub struct Shape {
    /// One an axis.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// Size of an axis: a number, a name, or neither.
#[derive(Clone, PartialEq, Message)]
pub struct Dimension {
    /// The size.
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    /// Name of a size that differs from run to run.
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}

/// Nodes that a node of its name stands for.
#[derive(Clone, PartialEq, Message)]
pub struct Function {
    /// Its name: the `op_type` of nodes that call it.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Names of the inputs inside.
    #[prost(string, repeated, tag = "4")]
    pub input: Vec<String>,
    /// Names of the outputs inside.
    #[prost(string, repeated, tag = "5")]
    pub output: Vec<String>,
    /// What it consists of.
    #[prost(message, repeated, tag = "7")]
    pub node: Vec<Node>,
    /// The domain of nodes that call it.
    #[prost(string, tag = "10")]
    pub domain: String,
    /// Attributes with the values that hold where a call says nothing.
    #[prost(message, repeated, tag = "11")]
    pub attribute_proto: Vec<Attribute>,
    /// Which of several functions of one name.
    #[prost(string, tag = "13")]
    pub overload: String,
}

/// Types of elements, by ONNX's numbers.
pub mod data_type {
    /// Single precision.
    pub const FLOAT: i32 = 1;
    /// Unsigned, 8 bits.
    pub const UINT8: i32 = 2;
    /// Signed, 8 bits.
    pub const INT8: i32 = 3;
    /// Unsigned, 16 bits.
    pub const UINT16: i32 = 4;
    /// Signed, 16 bits.
    pub const INT16: i32 = 5;
    /// Signed, 32 bits.
    pub const INT32: i32 = 6;
    /// Signed, 64 bits.
    pub const INT64: i32 = 7;
    /// Truth.
    pub const BOOL: i32 = 9;
    /// Half precision.
    pub const FLOAT16: i32 = 10;
    /// Double precision.
    pub const DOUBLE: i32 = 11;
    /// Unsigned, 32 bits.
    pub const UINT32: i32 = 12;
    /// Unsigned, 64 bits.
    pub const UINT64: i32 = 13;
    /// The upper half of single precision.
    pub const BFLOAT16: i32 = 16;
}
