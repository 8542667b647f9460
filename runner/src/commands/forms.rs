//! `runner forms`: the parallel forms of the PyTorch world, side by side.

use super::figures;
use super::words::{column, counted};
use crate::args::FormsArgs;
use crate::failure::Failure;
use pipewright_core::cost::forms::{Case, Form, FormCost, cost};
use pipewright_core::cost::memory::States;
use pipewright_core::cost::{Cluster, Costs, Workload};
use pipewright_core::graph::{Graph, Precision};
use pipewright_core::partition::balanced;
use pipewright_core::units::Nanos;
use serde_json::{Value, json};

/// Runs the command.
pub fn forms(args: &FormsArgs) -> Result<(), Failure> {
    let mut cluster = super::cluster::read_cluster(&args.cluster, &args.changes)?;
    let model = super::model::read_model(&args.model, &args.onnx, &mut cluster)?;
    let usage = |e: String| Failure::usage(e);
    let graph = model.graph().map_err(|e| usage(e.to_string()))?;
    super::model::priced(&args.model, &graph, &args.onnx)?;
    let devices = args.devices;
    let row = |form| {
        let found = row(form, args, &graph, &cluster);
        (form, found)
    };
    let rows: Vec<(Form, Result<FormCost, String>)> = FORMS.into_iter().map(row).collect();
    if args.json {
        figures::print(&object(args, &cluster, &rows));
        return Ok(());
    }
    say!(
        "{} on {} of {}, mini-batch {}",
        args.model,
        counted(devices, "device"),
        cluster.name,
        args.mini_batch
    );
    say!("{:<26} {:>12} {:>12} {:>12}  communications", "form", "step", "memory", "sent");
    let steps: Vec<Nanos> = rows.iter().flat_map(|(_, row)| row).map(|row| row.step).collect();
    let mut steps = column(&steps).into_iter();
    for (form, row) in &rows {
        let name = title(*form);
        match row {
            Ok(row) => say!(
                "{name:<26} {:>12} {:>12} {:>12}  {}{}",
                steps.next().unwrap_or_default(),
                row.peak.to_string(),
                row.traffic.to_string(),
                row.communications,
                if row.peak > cluster.device.memory {
                    "; more memory than a device has"
                } else {
                    ""
                }
            ),
            Err(why) => say!("{name:<26} {why}"),
        }
    }
    Ok(())
}

/// What a form takes, or why it does not apply.
fn row(form: Form, args: &FormsArgs, graph: &Graph, cluster: &Cluster) -> Result<FormCost, String> {
    let (devices, replicas) = (args.devices, args.replicas);
    let stages = match form {
        Form::ModelParallel | Form::Pipeline => devices,
        Form::Hybrid if devices == replicas || !devices.is_multiple_of(replicas) => {
            return Err(format!(
                "{replicas} pipelines of several devices are not {}",
                counted(devices, "device")
            ));
        }
        Form::Hybrid => devices / replicas,
        _ => 1,
    };
    let parts = form.parts(devices, replicas, args.micro_batches);
    let work = Workload::in_parts(graph, cluster, Precision::F32, args.mini_batch, parts);
    let work = work.map_err(|why| why.to_string())?;
    let costs = Costs::new(graph, cluster, args.mini_batch, Precision::F32);
    let case = Case {
        work: &work,
        layers: Some((graph, Precision::F32)),
        cluster,
        devices: if form == Form::Alone { 1 } else { devices },
        cuts: &balanced(graph, &costs, stages).map_err(|why| why.to_string())?,
        micro_batches: args.micro_batches,
        states: States::MOMENTUM,
    };
    cost(form, &case).map_err(|why| why.to_string())
}

fn object(args: &FormsArgs, cluster: &Cluster, rows: &[(Form, Result<FormCost, String>)]) -> Value {
    let row = |(form, row): &(Form, Result<FormCost, String>)| match row {
        Ok(row) => json!({
            "form": title(*form),
            "devices": row.devices,
            "step_ns": row.step.0,
            "memory_bytes": row.peak.0,
            "sent_bytes": row.traffic.0,
            "communications": row.communications,
            "fits": row.peak <= cluster.device.memory,
        }),
        Err(why) => json!({ "form": title(*form), "why_not": why }),
    };
    json!({
        "model": args.model,
        "cluster": cluster.name,
        "devices": args.devices,
        "mini_batch": args.mini_batch,
        "forms": rows.iter().map(row).collect::<Vec<Value>>(),
    })
}

const FORMS: [Form; 9] = [
    Form::Alone,
    Form::DataParallel,
    Form::DistributedDataParallel,
    Form::Zero1,
    Form::Zero2,
    Form::TensorParallel,
    Form::ModelParallel,
    Form::Pipeline,
    Form::Hybrid,
];

fn title(form: Form) -> &'static str {
    match form {
        Form::Alone => "one device",
        Form::DataParallel => "DataParallel",
        Form::DistributedDataParallel => "DistributedDataParallel",
        Form::Zero1 => "ZeRO-1",
        Form::Zero2 => "ZeRO-2",
        Form::TensorParallel => "tensor parallel",
        Form::ModelParallel => "model parallel",
        Form::Pipeline => "pipeline",
        Form::Hybrid => "pipeline x data",
    }
}
