// The part of /sys that libibverbs and its tools read, as a tree of files of our own.

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <unistd.h>

#include "softmlx5/front/machine.hpp"
#include "softmlx5/front/port.hpp"

namespace softmlx5::front {

namespace {

namespace fs = std::filesystem;

/// Gone with the process that made it, not with a child that it forked.
struct tree {
    fs::path root;
    pid_t maker = ::getpid();

    ~tree() {
        std::error_code ignored;
        if (::getpid() == maker) fs::remove_all(root, ignored);
    }
    void write(const std::string& name, const std::string& text) const {
        fs::create_directories((root / name).parent_path());
        std::ofstream(root / name) << text << "\n";
    }
};

}  // namespace

void machine::present() {
    static tree made;
    if (!made.root.empty()) return;
    std::string name = (fs::temp_directory_path() / "softmlx5.XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) std::abort();
    made.root = name;

    const std::string file = "class/infiniband_verbs/uverbs0/";
    made.write("class/infiniband_verbs/abi_version", "6");
    made.write(file + "ibdev", "mlx5_0");
    made.write(file + "dev", "1:3");  // /dev/null, see machine::open_file
    made.write(file + "abi_version", "1");
    made.write(file + "device/modalias", modalias);
    const std::string nic = "class/infiniband/mlx5_0/";
    made.write(nic + "node_type", "1: CA");
    made.write(nic + "node_guid", node_guid_text);
    made.write(nic + "sys_image_guid", node_guid_text);
    made.write(nic + "fw_ver", "0.0.0");
    made.write(nic + "hca_type", "softmlx5");
    made.write(nic + "board_id", "softmlx5");
    made.write(nic + "device/modalias", modalias);
    made.write(nic + "device/vendor", "0x15b3");
    made.write(nic + "device/device", "0x1021");
    made.write(nic + "device/numa_node", "-1");
    made.write(nic + "ports/1/pkeys/0", "0xffff");
    made.write(nic + "ports/1/link_layer", "Ethernet");
    made.write(nic + "ports/1/state", "4: ACTIVE");
    for (std::size_t i = 0; i < gid_table.size(); ++i) {
        const auto index = std::to_string(i);
        made.write(nic + "ports/1/gids/" + index, gid_table[i].text);
        made.write(nic + "ports/1/gid_attrs/types/" + index,
                   gid_table[i].type == gid_type::roce_v2 ? "RoCE v2" : "IB/RoCE v1");
        made.write(nic + "ports/1/gid_attrs/ndevs/" + index, "lo");
    }
    ::setenv("SYSFS_PATH", name.c_str(), 1);
}

}  // namespace softmlx5::front
