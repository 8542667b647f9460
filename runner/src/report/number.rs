//! Numbers of losses as people read them.

/// Four decimals, or powers of ten where those would say nothing.
pub fn loss_text(loss: f64) -> String {
    let size = loss.abs();
    match size >= 1e6 || (size > 0.0 && size < 1e-3) {
        true => format!("{loss:.3e}"),
        false => format!("{loss:.4}"),
    }
}

#[cfg(test)]
mod tests {
    use super::loss_text;

    #[test]
    fn absurd_losses_stay_short() {
        for (loss, text) in [
            (2.3456, "2.3456"),
            (0.0, "0.0000"),
            (514_693_546_508_756_211_027_935_232.0, "5.147e26"),
            (0.000_042_13, "4.213e-5"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(loss_text(loss), text);
        }
    }
}
