//! Oddities of data sets: what may be meant, and is said because it may not be.

use super::{DataSet, cifar};
use pipewright_core::plan::Data;
use std::path::Path;

/// A sentence on each: fewer samples than a step takes, files that CIFAR-10 has and the folder has not.
pub fn remarks(data: &Data, set: &DataSet, mini_batch: u64) -> Vec<String> {
    let mut remarks = vec![];
    let samples = set.train.len();
    if samples < mini_batch {
        remarks.push(format!(
            "{samples} samples to train on are fewer than the mini-batch of {mini_batch}: each step takes \
             some of them several times"
        ));
    }
    if let Data::Cifar10 { dir } = data
        && let Ok(files) = cifar::training_files(Path::new(dir))
        && files.len() < cifar::FILES
    {
        let (here, all) = (files.len(), cifar::FILES);
        let next = here + 1;
        remarks.push(format!(
            "{here} of CIFAR-10's {all} files of training samples are there; data_batch_{next}.bin is missing"
        ));
    }
    remarks
}
