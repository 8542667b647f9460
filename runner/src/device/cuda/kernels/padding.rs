//! Products of linear layers whose outputs are no whole accesses of 16 bytes, a vocabulary of 50257 words say:
//! matrix units are quick where rows of all matrices begin at such accesses, and several times slower
//! elsewhere.
//!
//! ```text
//! y = x Wᵀ + b    W, b with zeros behind them ──> product, rows of 50304 ──> y, rows of 50257
//! gx = gy W       W with zeros behind it, gy ──> rows of 50304, zeros at their ends ──> product
//! gW += gyᵀ x     gy ──> rows of 50304 ──> product of the first 50256; the last by sums over columns of x
//! ```
//! `y` and `gy` go through scratch some rows at a time; sums over rows are then made in the order of these
//! parts. Whether, and in how many parts, follows from shapes alone.

use super::{
    Buffers, ColumnSums, DevicePtr, Launch, PitchedRows, Plan, Product, ProductStep, Source, Step,
    Storage, rows,
};

/// Elements whose multiples rows begin at.
const PITCH: u64 = 64;

/// Rows of a part are multiples of so many, where there is room for as many.
const TILE: u64 = 128;

/// Which products are padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddingLimits {
    /// Multiplications that pay for copies.
    pub multiplications: u64,
    /// Inputs and rows of a layer, likewise: a copied element takes part in as many.
    pub inputs: u64,
    /// Bytes of scratch for rows of outputs.
    pub room: u64,
}

impl Default for PaddingLimits {
    fn default() -> Self {
        Self { multiplications: 1 << 32, inputs: 256, room: 400 << 20 }
    }
}

/// The steps that take a product's place, and the bytes of scratch that they need.
#[derive(Clone, Debug, PartialEq)]
pub struct Padded {
    /// In their order.
    pub steps: Vec<Step>,
    /// Bytes.
    pub scratch: u64,
}

/// Which of a linear layer's products it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    Forward,
    InputGradient,
    WeightGradient,
}

/// A linear layer's product: its sizes, and where scratch is.
struct Layer<'a> {
    product: &'a ProductStep,
    pass: Pass,
    rows: u64,
    inputs: u64,
    outputs: u64,
    /// Bytes of an element.
    bytes: u64,
    /// Scratch for some rows of outputs, for the weight, and for the bias.
    places: [DevicePtr; 3],
}

/// Adds a linear layer's product to a plan, padded where that pays.
pub(super) fn multiply(plan: &mut Plan, args: Product, bias: DevicePtr, to_f32: bool) {
    let product = ProductStep { args, to_f32, bias, tf32: plan.tf32(), fp8: None };
    let storage = plan.storage();
    // Scratch is only as large as it has to be, which is known when the steps are.
    let base = plan.scratch(0);
    match padded(&product, storage, base, &PaddingLimits::default()) {
        Some(padded) => {
            plan.scratch(padded.scratch);
            plan.steps.extend(padded.steps);
        }
        None => plan.multiply(args, bias, to_f32, None),
    }
}

/// What takes the place of a product, with scratch from `base` on; none where it is done as it is.
pub fn padded(
    product: &ProductStep,
    storage: Storage,
    base: DevicePtr,
    limits: &PaddingLimits,
) -> Option<Padded> {
    // The units that want whole accesses.
    let by_units = storage != Storage::F32 || product.tf32;
    let layer = Layer::of(product, storage).filter(|_| by_units)?;
    let Layer { rows, inputs, outputs, bytes, .. } = layer;
    let whole = 16 / bytes;
    let pays = inputs.min(rows) >= limits.inputs
        && rows * inputs * outputs >= limits.multiplications
        && inputs.is_multiple_of(whole)
        && !outputs.is_multiple_of(whole);
    pays.then(|| layer.with_scratch(storage, base, limits.room))
}

impl<'a> Layer<'a> {
    fn of(product: &'a ProductStep, storage: Storage) -> Option<Self> {
        let Product { m, n, k, batch, accumulate, a_strides, b_strides, c_strides, .. } =
            product.args;
        let [m, n, k] = [m, n, k].map(u64::from);
        // Rows lie one behind the other, or the columns of a matrix do.
        let along = |columns: u64| [columns, 1];
        let across = |rows: u64| [1, rows];
        let forward = [along(k), across(k), along(n)];
        let input_gradient = [along(k), along(n), along(n)];
        let weight_gradient = [across(m), along(n), along(n)];
        let strides = [a_strides, b_strides, c_strides];
        let (pass, [rows, inputs, outputs]) = match product.to_f32 {
            false if strides == forward => (Pass::Forward, [m, k, n]),
            false if strides == input_gradient => (Pass::InputGradient, [m, n, k]),
            true if strides == weight_gradient && accumulate != 0 => {
                (Pass::WeightGradient, [k, n, m])
            }
            _ => return None,
        };
        let (bytes, places) = (storage.bytes(), [DevicePtr::NULL; 3]);
        let is_one = batch == [1, 1] && product.fp8.is_none();
        is_one.then_some(Self { product, pass, rows, inputs, outputs, bytes, places })
    }

    fn pitch(&self) -> u64 {
        self.outputs.next_multiple_of(PITCH)
    }

    fn with_scratch(mut self, storage: Storage, base: DevicePtr, room: u64) -> Padded {
        let row = self.pitch() * self.bytes;
        let most = (room / row).max(1);
        let parts = self.rows.div_ceil(most);
        let each = self.rows.div_ceil(parts).next_multiple_of(TILE).min(most).min(self.rows);
        let weight = if self.pass == Pass::WeightGradient { 0 } else { row * self.inputs };
        let bias = if self.product.bias == DevicePtr::NULL { 0 } else { row };
        let mut end = 0;
        let mut place = |bytes: u64| {
            let place = base.after(end);
            end += bytes.next_multiple_of(256);
            place
        };
        self.places = [each * row, weight, bias].map(&mut place);
        let mut steps = self.operands();
        for first in (0..self.rows).step_by(each as usize) {
            self.some_rows(first, each.min(self.rows - first), &mut steps);
        }
        let mut plan = Plan::new(storage, false, &Buffers { scratch: base, ..Buffers::default() });
        if self.pass == Pass::WeightGradient {
            (self.whole()..self.outputs).for_each(|output| self.last_output(output, &mut plan));
        }
        steps.extend(plan.steps);
        Padded { steps, scratch: end.max(plan.scratch) }
    }

    /// Outputs that are whole accesses.
    fn whole(&self) -> u64 {
        self.outputs - self.outputs % (16 / self.bytes)
    }

    /// The weight gradient of an output behind those: one row, for which no matrix unit is needed.
    fn last_output(&self, output: u64, plan: &mut Plan) {
        let Self { product: ProductStep { args, .. }, rows, inputs, outputs, bytes, .. } = *self;
        let sums = ColumnSums {
            gy: args.b,
            factors: args.a.after(output * bytes),
            apart: outputs,
            plain: args.c.after(4 * output * inputs),
            rows,
            n: inputs,
            ..ColumnSums::default()
        };
        rows::column_sums(plan, sums);
    }

    /// Copies of the weight and of the bias, with zeros behind them.
    fn operands(&self) -> Vec<Step> {
        let Self { product: ProductStep { args, bias, .. }, inputs, outputs, bytes, .. } = *self;
        let [_, weight, of_bias] = self.places;
        let one = |x: DevicePtr, out: DevicePtr, elements: u64| {
            let [to, count] = [self.pitch(), outputs].map(|rows| rows * elements * bytes);
            copy("pad_rows", PitchedRows { x, out, rows: 1, bytes: count, from: count, to })
        };
        let mut steps = vec![];
        if self.pass != Pass::WeightGradient {
            steps.push(one(args.b, weight, inputs));
        }
        if *bias != DevicePtr::NULL {
            steps.push(one(*bias, of_bias, 1));
        }
        steps
    }

    /// The product of some rows.
    fn some_rows(&self, first: u64, rows: u64, steps: &mut Vec<Step>) {
        let Self { product, inputs, outputs, bytes, .. } = *self;
        let (args, pitch, [part, weight, of_bias]) = (product.args, self.pitch(), self.places);
        let own = |place: DevicePtr, columns: u64| place.after(first * columns * bytes);
        let [from, to] = [outputs, pitch].map(|columns| columns * bytes);
        let padded = |gy: DevicePtr| {
            let x = own(gy, outputs);
            copy("pad_rows", PitchedRows { x, out: part, rows, bytes: from, from, to })
        };
        let (few, wide) = (rows as u32, pitch as u32);
        let step = |args: Product| Step::Product(ProductStep { args, ..*product });
        match self.pass {
            Pass::Forward => {
                let x = own(args.a, inputs);
                let c_strides = [pitch, 1];
                let args = Product { a: x, b: weight, c: part, m: few, n: wide, c_strides, ..args };
                let bias = if product.bias == DevicePtr::NULL { product.bias } else { of_bias };
                steps.push(Step::Product(ProductStep { args, bias, ..*product }));
                let out = own(product.args.c, outputs);
                let back = PitchedRows { x: part, out, rows, bytes: from, from: to, to: from };
                steps.push(copy("unpad_rows", back));
            }
            Pass::InputGradient => {
                steps.push(padded(args.a));
                let (c, a_strides) = (own(args.c, inputs), [pitch, 1]);
                let (a, b) = (part, weight);
                steps.push(step(Product { a, b, c, m: few, k: wide, a_strides, ..args }));
            }
            Pass::WeightGradient => {
                steps.push(padded(args.a));
                let (a, m, accumulate) = (part, self.whole() as u32, 1);
                let b = own(args.b, inputs);
                let a_strides = [1, pitch];
                if m > 0 {
                    let args = Product { a, b, a_strides, m, k: few, accumulate, ..args };
                    steps.push(step(args));
                }
            }
        }
    }
}

/// Most rows of a grid.
const GRID_ROWS: u64 = 1 << 15;

fn copy(kernel: &str, rows: PitchedRows) -> Step {
    // Two accesses a thread.
    let blocks = rows.to.max(rows.from).div_ceil(16 * 2 * u64::from(super::BLOCK));
    let launch = Launch::blocks(Source::Rows, kernel.into(), blocks, &rows);
    let [x, _, z] = launch.grid;
    Step::Kernel(Launch { grid: [x, rows.rows.min(GRID_ROWS) as u32, z], ..launch })
}
