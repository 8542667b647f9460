//! Values that files may leave out.

pub fn yes() -> bool {
    true
}

pub fn one() -> u64 {
    1
}

pub fn is_true(value: &bool) -> bool {
    *value
}

pub fn is_false(value: &bool) -> bool {
    !*value
}

pub fn is_zero(value: &f32) -> bool {
    *value == 0.0
}

pub fn is_first(axis: &u64) -> bool {
    *axis == 0
}

pub fn is_none(count: &u64) -> bool {
    *count == 0
}

pub fn is_one(step: &u64) -> bool {
    *step == 1
}

/// AlexNet's numbers, which are also PyTorch's.
pub mod lrn {
    pub fn alpha() -> f32 {
        1e-4
    }

    pub fn beta() -> f32 {
        0.75
    }

    pub fn k() -> f32 {
        1.0
    }
}
