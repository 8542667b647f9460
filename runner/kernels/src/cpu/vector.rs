//! Loops compiled once per instruction set, chosen when they run.
//!
//! Programs are built for the oldest processor of their kind; most have wider vectors. The macro
//! below compiles the same safe loop several times. Multiplications and additions are never
//! contracted into one rounding, so all versions give the same bits.

/// Defines a function whose body is compiled for AVX-512, AVX2 and the oldest processor. Functions
/// called in the body must be `#[inline(always)]` to be compiled along, and loops be `for`: of
/// `for_each` with much in its closure the compiler makes one function for the oldest processor.
macro_rules! vectorised {
    ($(
        $(#[$meta:meta])*
        $vis:vis fn $name:ident $(<$g:ident: $bound:path>)? ($($arg:ident: $ty:ty),* $(,)?)
        $(-> $ret:ty)? $body:block
    )*) => {$(
        $(#[$meta])*
        $vis fn $name $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn oldest $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
                fn avx512 $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                    oldest $(::<$g>)? ($($arg),*)
                }
                #[target_feature(enable = "avx2")]
                fn avx2 $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                    oldest $(::<$g>)? ($($arg),*)
                }
                match $crate::cpu::vector::level() {
                    // SAFETY: the processor has what the function is compiled for.
                    $crate::cpu::vector::Level::Avx512 => {
                        return unsafe { avx512 $(::<$g>)? ($($arg),*) };
                    }
                    // SAFETY: as above.
                    $crate::cpu::vector::Level::Avx2 => {
                        return unsafe { avx2 $(::<$g>)? ($($arg),*) };
                    }
                    $crate::cpu::vector::Level::Oldest => {}
                }
            }
            oldest $(::<$g>)? ($($arg),*)
        }
    )*};
}

pub(super) use vectorised;

/// An instruction set.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Oldest,
    Avx2,
    Avx512,
}

/// The widest vectors of this processor; asked once, remembered by the standard library.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn level() -> Level {
    let wide = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl");
    match (wide, is_x86_feature_detected!("avx2")) {
        (true, _) => Level::Avx512,
        (false, true) => Level::Avx2,
        (false, false) => Level::Oldest,
    }
}
