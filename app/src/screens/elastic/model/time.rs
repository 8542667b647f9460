//! Times as people write them: `90`, `1.5`, `90s`, `30m`, `1h30m`, `1:30:00`.

/// The longest time that is taken, in milliseconds: hundred days.
pub const MOST: u64 = 100 * 24 * HOUR;

const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// Milliseconds of a text; none where it is no time up to [`MOST`].
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let ms = if text.contains(':') { clock(text)? } else { units(text)? };
    (ms <= MOST).then_some(ms)
}

/// `1:30:00` and `2:05`: hours, minutes, seconds.
fn clock(text: &str) -> Option<u64> {
    let parts: Vec<u64> = text.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match parts[..] {
        [h, m, s] if h <= 2400 && m < 60 && s < 60 => Some(h * HOUR + m * MINUTE + s * SECOND),
        [m, s] if m <= 144_000 && s < 60 => Some(m * MINUTE + s * SECOND),
        _ => None,
    }
}

/// `1h30m`, `90`: a number without unit is seconds.
fn units(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut sum = 0.0;
    let mut last = u64::MAX;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let number: f64 = rest[..end].parse().ok()?;
        let after = rest[end..].trim_start();
        let (unit, after) = match after {
            _ if after.starts_with("ms") => (1, &after[2..]),
            _ if after.starts_with('h') => (HOUR, &after[1..]),
            _ if after.starts_with('m') => (MINUTE, &after[1..]),
            _ if after.starts_with('s') => (SECOND, &after[1..]),
            "" if last == u64::MAX => (SECOND, after),
            _ => return None,
        };
        if unit >= last {
            return None;
        }
        last = unit;
        sum += number * unit as f64;
        rest = after.trim_start();
    }
    (!text.is_empty() && sum <= MOST as f64).then_some(sum.round() as u64)
}

/// The shortest text of a time that [`parse`] reads.
pub fn text(ms: u64) -> String {
    let (h, m, rest) = (ms / HOUR, ms % HOUR / MINUTE, ms % MINUTE);
    let mut out = String::new();
    for (count, unit) in [(h, "h"), (m, "m")] {
        if count > 0 {
            out += &format!("{count}{unit}");
        }
    }
    if rest > 0 || out.is_empty() {
        // The shortest decimals that say it: 1500 ms are 1.5s.
        out += &format!("{}s", rest as f64 / SECOND as f64);
    }
    out
}

/// A time for people, as exact as its length deserves: `1 h 30 min`, `12.5 s`, `480 ms`.
pub fn spoken(nanos: u64) -> String {
    let ms = nanos as f64 / 1e6;
    match ms {
        _ if nanos == 0 => "0 s".to_owned(),
        _ if ms < 1.0 => format!("{ms:.2} ms"),
        _ if ms < 1000.0 => format!("{ms:.0} ms"),
        _ if ms < 10_000.0 => format!("{:.2} s", ms / 1000.0),
        _ if ms < 90_000.0 => format!("{:.1} s", ms / 1000.0),
        _ => {
            let seconds = (ms / 1000.0).round() as u64;
            match (seconds / 3600, seconds % 3600 / 60, seconds % 60) {
                (0, m, 0) => format!("{m} min"),
                (0, m, s) => format!("{m} min {s} s"),
                (h, 0, _) if h < 48 => format!("{h} h"),
                (h, m, _) if h < 48 => format!("{h} h {m} min"),
                (h, ..) => format!("{} d {} h", h / 24, h % 24),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_times_in_many_ways() {
        for (text, ms) in [
            ("90", 90_000),
            ("1.5", 1500),
            ("0", 0),
            ("250ms", 250),
            (" 2h ", 7_200_000),
            ("1h30m", 5_400_000),
            ("1h 30m 5s", 5_405_000),
            ("1:30:00", 5_400_000),
            ("2:05", 125_000),
        ] {
            assert_eq!(parse(text), Some(ms), "{text}");
        }
        for bad in
            ["", "x", "-1", "1d", "3m2h", "1m1m", "5x", "1:99", "99999h", "1e9", "nan", "1h5", "."]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn they_are_said_as_exactly_as_needed() {
        let all = [450_000, 12_000_000, 1_500_000_000, 42_000_000_000, 125_000_000_000];
        assert_eq!(all.map(spoken), ["0.45 ms", "12 ms", "1.50 s", "42.0 s", "2 min 5 s"]);
        assert_eq!(spoken(5_400_000_000_000), "1 h 30 min");
        assert_eq!(spoken(3600 * 50 * 1_000_000_000), "2 d 2 h");
    }

    #[test]
    fn what_is_written_is_read_and_nothing_panics() {
        for ms in (0..5000).chain((0..2000).map(|k| k * k * 1237)).chain([MOST]) {
            assert_eq!(parse(&text(ms)), Some(ms), "{}", text(ms));
        }
        for text in ["é", "1é", "1:é", ":", "::", "1h:", "ms", "m", "1..2", "∞", "1 2 3", "h1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
