// Parts of data_format.cc that tests call.
#pragma once

#include "images/coco/coco_data.h"
#include "images/formats/data_format.h"
#include "images/pictures/form.h"
#include "images/prepared/prepared_store.h"

namespace slackline::images {

// Convert section data to the options of those who read it.
PreparedStoreOptions StoreOptionsOf(const DataRequest& request, ImagePeers* peers);
pictures::FormWish FormWishOf(const job::Decode& decode);
coco::CocoOptions CocoOptionsOf(const DataRequest& request);

}  // namespace slackline::images
