//! Finds DPDK with pkg-config, generates the bindings and compiles the shim.
//!
//! The flags are taken raw from `pkg-config`: they hold `-march=corei7` and the two-word
//! `-include rte_config.h`, both of which change the layout of structures and must reach bindgen
//! and the C compiler alike. The `pkg-config` crate would drop them.

use std::path::{Path, PathBuf};
use std::process::Command;

use bindgen::callbacks::{IntKind, ParseCallbacks};

fn main() {
    let out = PathBuf::from(std::env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let cflags = pkg_config("--cflags");
    let libs = pkg_config("--libs");

    generate_bindings(&cflags, &out);
    compile_shim(&cflags);
    link(&libs);

    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/shim.h");
    println!("cargo::rerun-if-changed=src/shim.c");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_PATH");
    println!("cargo::rerun-if-env-changed=PKG_CONFIG_LIBDIR");
}

/// The words that `pkg-config WHAT libdpdk` prints. Ends the build with advice if DPDK is missing
/// or is not the 22.11 series, whose structures this crate reads.
fn pkg_config(what: &str) -> Vec<String> {
    let run = |args: &[&str]| match Command::new("pkg-config").args(args).output() {
        Ok(out) if out.status.success() => String::from_utf8_lossy(&out.stdout).into_owned(),
        Ok(out) => give_up(&String::from_utf8_lossy(&out.stderr)),
        Err(error) => give_up(&format!("cannot run pkg-config: {error}")),
    };
    let version = run(&["--modversion", "libdpdk"]);
    if !version.starts_with("22.11.") {
        give_up(&format!("found DPDK {}", version.trim()));
    }
    run(&[what, "libdpdk"]).split_whitespace().map(str::to_owned).collect()
}

fn give_up(reason: &str) -> ! {
    for line in [
        "Weir needs the development files of DPDK 22.11, found through `pkg-config libdpdk`.",
        "On Debian 12: `make setup`, or",
        "  apt-get install build-essential pkg-config clang libclang-dev libdpdk-dev",
        "If DPDK is installed elsewhere, set PKG_CONFIG_PATH to the folder with libdpdk.pc.",
    ] {
        println!("cargo::error={line}");
    }
    for line in reason.lines().filter(|line| !line.trim().is_empty()) {
        println!("cargo::error=pkg-config: {line}");
    }
    // The errors above fail the build; a failing status would print them twice.
    std::process::exit(0);
}

fn generate_bindings(cflags: &[String], out: &Path) {
    bindgen::Builder::default()
        .header("src/shim.h")
        .clang_args(cflags)
        .allowlist_function("(rte|shim)_.*")
        .allowlist_type("rte_.*")
        .allowlist_var("(rte|RTE|RING_F|LCORE_ID|SOCKET_ID)_.*")
        // Thread-local: bindgen would declare a plain static, and reading it is a segmentation fault.
        .blocklist_var("per_lcore_.*")
        // Without the fallback every macro made with RTE_BIT64, hence every offload flag, is missing.
        .clang_macro_fallback()
        .clang_macro_fallback_build_dir(out)
        // Packed structures that hold an aligned rte_ether_addr: not expressible in Rust.
        .opaque_type("rte_arp_.*|rte_gtp_psc_.*|rte_flow_item_gtp_psc|rte_l2tpv2_.*")
        .no_copy("rte_mbuf|rte_mempool|rte_ring")
        .no_debug("rte_mbuf")
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .use_core()
        .derive_default(true)
        .generate_comments(false)
        .layout_tests(true)
        .parse_callbacks(Box::new(bindgen::CargoCallbacks::new()))
        .parse_callbacks(Box::new(FlagWidth))
        .generate()
        .unwrap_or_else(|error| give_up(&format!("bindgen: {error}")))
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR is writable");
}

/// Flag macros become u64 whatever their value, as the fields they are tested against.
#[derive(Debug)]
struct FlagWidth;

impl ParseCallbacks for FlagWidth {
    fn int_macro(&self, name: &str, _value: i64) -> Option<IntKind> {
        let flag =
            name.starts_with("RTE_MBUF_F_") || name.starts_with("RTE_ETH_RSS_") || name.contains("_OFFLOAD_");
        flag.then_some(IntKind::U64)
    }
}

fn compile_shim(cflags: &[String]) {
    let mut build = cc::Build::new();
    build.file("src/shim.c").opt_level(3);
    for flag in cflags {
        build.flag(flag);
    }
    build.compile("weir_dpdk_shim");
}

/// Dynamic linking, with the libraries pkg-config lists. The linker keeps those that are used.
fn link(libs: &[String]) {
    for word in libs {
        if let Some(dir) = word.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={dir}");
        } else if let Some(lib) = word.strip_prefix("-l") {
            println!("cargo::rustc-link-lib=dylib={lib}");
        }
    }
    // A driver's own functions (rte_eth_from_rings) are in no pkg-config list.
    println!("cargo::rustc-link-lib=dylib=rte_net_ring");
}
