//! Choices among the algorithms that a library has for a shape, by their times on this device.
//!
//! A library expects times, and its expectations follow from shapes alone; here they are measured, once: what was quickest
//! is kept on the disk, by library, version, GPU and shape, so that later runs of this machine have the same bits.

use super::cache::Cache;
use crate::device::DeviceError;

/// What measures on a device.
pub trait Stopwatch: Send {
    /// Nanoseconds that the device takes for what `work` asks of it, when it has done all that it was asked for before.
    ///
    /// # Errors
    /// Those of `work`, and when the device has failed.
    fn time(
        &mut self,
        work: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<u64, DeviceError>;
}

/// What was chosen so far, and what measures.
pub struct Choices {
    /// Library, version and GPU.
    who: String,
    cache: Cache,
    /// None once results count: whoever is timed is asked several times, and adds up what it should add once.
    watch: Option<Box<dyn Stopwatch>>,
    told: Vec<String>,
}

/// Times of an algorithm, of which the shortest counts, after one that is not timed.
const TIMES: u32 = 3;

/// How much quicker another one than the library's own choice has to be: what is less is noise.
const WORTH: f64 = 0.98;

impl Choices {
    /// Those of a library on a GPU.
    pub fn new(who: String, cache: Cache, watch: Box<dyn Stopwatch>) -> Self {
        Self { who, cache, watch: Some(watch), told: vec![] }
    }

    /// From now on nothing is measured: what is not known yet is as the library expects.
    pub fn end(&mut self) {
        self.watch = None;
    }

    /// What was chosen, in words.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// The index of the one to take for a key, which has a name for people. Each is known by its bytes; those that the
    /// library expects to be quicker come first. `run` asks for one, and says whether the library takes it.
    ///
    /// # Errors
    /// Those of `run`, and when the device has failed.
    pub fn among(
        &mut self,
        (key, name): (&str, &str),
        ways: &[Vec<u8>],
        run: &mut dyn FnMut(usize) -> Result<bool, DeviceError>,
    ) -> Result<usize, DeviceError> {
        let key = format!("{}\n{key}", self.who);
        let kept = self.cache.kept(&key);
        if let Some(chosen) = kept.and_then(|kept| ways.iter().position(|way| *way == kept)) {
            self.tell(name, chosen, ways.len(), "as measured before");
            return Ok(chosen);
        }
        let Some(mut watch) = self.watch.take() else { return Ok(0) };
        let mut times = vec![];
        for way in 0..ways.len() {
            times.push(time(&mut *watch, way, run)?);
        }
        self.watch = Some(watch);
        let known = || (0..).zip(&times).filter_map(|(way, time)| Some((way, (*time)?)));
        let Some((quickest, least)) = known().min_by_key(|(way, time)| (*time, *way)) else {
            return Ok(0);
        };
        let expected = times[0].filter(|first| (least as f64) > WORTH * *first as f64);
        let chosen = if expected.is_some() { 0 } else { quickest };
        self.cache.keep(&key, &ways[chosen]);
        let us = |time: u64| format!("{:.1} us", time as f64 / 1e3);
        let first = times[0].map_or("which cannot be taken".into(), us);
        self.tell(name, chosen, ways.len(), &format!("{}, the first {first}", us(least)));
        Ok(chosen)
    }

    fn tell(&mut self, name: &str, chosen: usize, count: usize, why: &str) {
        self.told.push(format!("{name}: {} of {count}, {why}", chosen + 1));
    }
}

/// The shortest time of one way; none where the library does not take it.
fn time(
    watch: &mut dyn Stopwatch,
    way: usize,
    run: &mut dyn FnMut(usize) -> Result<bool, DeviceError>,
) -> Result<Option<u64>, DeviceError> {
    if !run(way)? {
        return Ok(None);
    }
    let mut least = u64::MAX;
    for _ in 0..TIMES {
        least = least.min(watch.time(&mut || run(way).map(|_| ()))?);
    }
    Ok(Some(least))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    /// Of each way: its times, one after the other, the last one again and again; none that is refused.
    struct Times {
        of: Vec<Vec<u64>>,
        asked: Vec<usize>,
    }

    struct Reads(std::sync::Arc<std::sync::Mutex<u64>>);

    impl Stopwatch for Reads {
        fn time(
            &mut self,
            work: &mut dyn FnMut() -> Result<(), DeviceError>,
        ) -> Result<u64, DeviceError> {
            work()?;
            Ok(*self.0.lock().expect("nobody panicked"))
        }
    }

    fn choose(folder: &std::path::Path, who: &str, times: &[&[u64]]) -> (usize, usize, String) {
        let now = std::sync::Arc::new(std::sync::Mutex::new(0));
        let watch = Box::new(Reads(now.clone()));
        let mut choices = Choices::new(who.into(), Cache::at(folder), watch);
        let of = times.iter().map(|times| times.to_vec()).collect::<Vec<_>>();
        let asked = vec![0; of.len()];
        let times = Rc::new(RefCell::new(Times { of, asked }));
        let ways: Vec<Vec<u8>> = (0..times.borrow().of.len()).map(|way| vec![way as u8]).collect();
        let mut run = |way: usize| {
            let Times { of, asked } = &mut *times.borrow_mut();
            asked[way] += 1;
            let Some(last) = of[way].last() else { return Ok(false) };
            *now.lock().expect("nobody panicked") = *of[way].get(asked[way] - 1).unwrap_or(last);
            Ok(true)
        };
        let chosen = choices.among(("m, n, k", "a product"), &ways, &mut run).unwrap();
        let asked = times.borrow().asked.iter().sum();
        (chosen, asked, choices.told().concat())
    }

    #[test]
    fn the_quickest_is_taken_and_kept() {
        let folder = std::env::temp_dir().join(format!("choices-{}", std::process::id()));
        // The first time of each, in which kernels are loaded, does not count; one is refused.
        let times: [&[u64]; 4] = [&[9000, 1000], &[], &[1, 900, 800, 950], &[800]];
        let (chosen, asked, told) = choose(&folder, "library 1", &times);
        assert_eq!((chosen, asked), (2, 1 + 3 * 4));
        assert_eq!(told, "a product: 3 of 4, 0.8 us, the first 1.0 us");
        // Nothing is asked for again, whatever it would take.
        let (chosen, asked, told) = choose(&folder, "library 1", &[&[1], &[1], &[1], &[1]]);
        assert_eq!((chosen, asked), (2, 0));
        assert_eq!(told, "a product: 3 of 4, as measured before");
        // Another version, GPU or shape is something else, and what is gone cannot be taken.
        assert_eq!(choose(&folder, "library 2", &[&[5], &[9]]).0, 0);
        assert_eq!(choose(&folder, "library 1", &[&[5], &[1]]).0, 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_little_quicker_is_noise() {
        let folder = std::env::temp_dir().join(format!("noise-{}", std::process::id()));
        assert_eq!(choose(&folder, "a", &[&[1000], &[981]]).0, 0);
        assert_eq!(choose(&folder, "b", &[&[1000], &[979]]).0, 1);
        // Of equals the one that is expected to be quicker; where the first is refused, another.
        assert_eq!(choose(&folder, "c", &[&[], &[700], &[700]]).0, 1);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn nothing_is_measured_once_results_count() {
        let folder = std::env::temp_dir().join(format!("ended-{}", std::process::id()));
        let watch = Box::new(Reads(Default::default()));
        let mut choices = Choices::new("a".into(), Cache::at(&folder), watch);
        choices.end();
        let mut run = |_| -> Result<bool, DeviceError> { panic!("it is not asked for") };
        assert_eq!(choices.among(("", ""), &[vec![0], vec![1]], &mut run).unwrap(), 0);
        assert!(choices.told().is_empty() && !folder.exists());
    }
}
